-- Constraint (VarySched, 3.2.4): kernels that run cost credits as long as they run: 9 on a device, 6 on all cores, 3 on
-- one core. Together they may cost 18, or 9 when the governor is low. A task takes the resource that it prefers most
-- among those that are free and within the limit.
words = "constraint"

local LIMITS = { high = 18, low = 9 }
local COSTS = { core = 3, ["all-cores"] = 6 }
local DEVICE = 9
-- Whether a low governor keeps tasks off devices. The strategy's description does not say so, one of the paper's
-- results does ("if the usage of the GPU is prohibited").
masks_devices = false

local function cost_of(kind)
  return COSTS[kind] or DEVICE
end

local function serve(node)
  local left = LIMITS[node.governor]
  for _, resource in ipairs(node.resources) do
    left = left - resource.load * cost_of(resource.kind)
  end
  local masked = masks_devices and node.governor == "low"
  for _, task in ipairs(node.waiting) do
    if left < 3 then
      return
    end
    for _, kernel in ipairs(task.kernels) do
      local cost, resource = cost_of(kernel.on), node:free_resource(kernel.on)
      if resource and cost <= left and not (masked and cost == DEVICE) then
        assign(task, resource)
        left = left - cost
        break
      end
    end
  end
end

begin, task_arrived, task_ended, governor_changed = serve, serve, serve, serve
