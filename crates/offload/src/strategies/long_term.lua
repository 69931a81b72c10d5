-- Long-term (VarySched, 3.2.2): each task goes at once to the resource that it prefers most, unless the queue there is
-- longer than that of its next preference by more than the factor between the two. When the governor is low, devices
-- stay unused.
words = "long-term"

-- Kinds of resources that the governor leaves, with the one of each that has least to do.
local function choices(node, task)
  local found = {}
  for _, kernel in ipairs(task.kernels) do
    local least
    for _, resource in ipairs(node.resources) do
      if resource.kind == kernel.on and (not least or resource.load < least.load) then
        least = resource
      end
    end
    local is_masked = node.governor == "low" and kernel.on ~= "core" and kernel.on ~= "all-cores"
    if least and not is_masked then
      table.insert(found, { resource = least, expected_ns = kernel.expected_ns })
    end
  end
  return found
end

local function place(node, task)
  local found = choices(node, task)
  for at, choice in ipairs(found) do
    local following = found[at + 1]
    -- How many times as fast it is here as on the next choice; where the program does not say, as fast.
    local factor = 1
    if following and choice.expected_ns and following.expected_ns then
      factor = following.expected_ns / choice.expected_ns
    end
    if not following or choice.resource.load <= factor * following.resource.load then
      assign(task, choice.resource)
      return
    end
  end
end

function begin(node)
  for _, task in ipairs(node.waiting) do
    place(node, task)
  end
end

task_arrived = place

-- What waits for a device stays there; tasks that found no resource at all are tried again.
governor_changed = begin
