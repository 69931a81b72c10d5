-- Banking (VarySched, 3.2.3): starting a kernel costs credits: 10 on a device, 5 on all cores, 1 on one core. There are
-- 100 at first and at most; every five seconds 15 come back, 10 when the governor is low. A task takes the resource
-- that it prefers most among those that are free and that the credits suffice for.
--
-- The paper speaks of a budget for each resource, and reckons in its results with one for all ("15 credits are
-- sufficient for a GPU and multi-threaded kernel"): this is the latter. A resource's queue holds a single task, as in
-- the short-term strategy, of which the paper calls it an extension.
words = "banking"
tick_s = 5

local MOST = 100
local REFILL = { high = 15, low = 10 }
local COSTS = { core = 1, ["all-cores"] = 5 }
local DEVICE = 10
local credits = MOST

local function serve(node)
  for _, task in ipairs(node.waiting) do
    if credits < 1 then
      return
    end
    for _, kernel in ipairs(task.kernels) do
      local cost, resource = COSTS[kernel.on] or DEVICE, node:free_resource(kernel.on)
      if resource and cost <= credits then
        assign(task, resource)
        credits = credits - cost
        break
      end
    end
  end
end

begin, task_arrived, task_ended = serve, serve, serve

function tick(node)
  credits = math.min(MOST, credits + REFILL[node.governor])
  serve(node)
end
