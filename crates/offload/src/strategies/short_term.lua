-- Short-term (VarySched, 3.2.1): all resources are to be busy all the time, which kernel that takes comes second.
-- A resource that becomes free takes the first task that prefers it most, else the first whose second preference it
-- is, and so on. The governor does not matter.
words = "short-term"

function resource_free(node, resource)
  local best, best_rank
  for _, task in ipairs(node.waiting) do
    local rank = task:rank_on(resource.kind)
    if rank and (not best or rank < best_rank) then
      best, best_rank = task, rank
      if rank == 1 then
        break
      end
    end
  end
  if best then
    assign(best, resource)
  end
end
