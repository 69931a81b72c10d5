-- A strategy for coplace: which task runs on which resource, by which of its kernels.
-- It works as it is; change it, and see what it does:
--
--   coplace offload check FILE
--   coplace offload simulate SCENARIO.toml --strategy FILE,short-term
--
-- What you define here stays between calls (a count, a history). There is no clock, no file and no random number, so
-- that the same always has the same effect; the time is node.now_ns. docs/commands/offload.md has all of it.

-- How it is called in tables.
words = "my own strategy"

-- For `function tick(node)`, called every so many seconds; without this line never.
-- tick_s = 5

-- A task has come and stands last in the global queue, node.waiting. Tasks that stay there are offered to each
-- resource that becomes free.
-- function task_arrived(node, task) end

-- A resource has nothing to do and tasks wait: assign one of them, or leave it idle.
function resource_free(node, resource)
  -- When the governor is low, devices rest.
  if node.governor == "low" and resource.kind ~= "core" and resource.kind ~= "all-cores" then
    return
  end
  -- The task that gains most here over its best other kernel; those without a kernel for this resource cannot run here.
  local best, best_factor
  for _, task in ipairs(node.waiting) do
    local here, elsewhere
    for _, kernel in ipairs(task.kernels) do
      local expected_ns = kernel.expected_ns or 1
      if kernel.on == resource.kind then
        here = expected_ns
      elseif not elsewhere or expected_ns < elsewhere then
        elsewhere = expected_ns
      end
    end
    if here then
      local factor = (elsewhere or here) / here
      if not best or factor > best_factor then
        best, best_factor = task, factor
      end
    end
  end
  if best then
    assign(best, resource)
  end
end

-- function task_ended(node, task) end
-- function governor_changed(node) end
