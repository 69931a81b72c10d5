-- Wider parts for programs that scale. Everybody gets one CPU more at a time: always who gains most by it,
-- for its weight. With curves of the programs (a notebook, or a live node that has seen them before) those
-- that scale become wide and those that do not stay narrow; with none all curves are taken to be alike, and
-- parts are equal.
--
--   coplace simulate docs/policies/lua/two-kinds.toml --machine core:8 --policy docs/policies/lua/wider.lua,TA --notebook full

words = "wider parts for who scales, in Lua"
promise = { waiting = "nobody" }

-- By what part it is faster with one CPU more than `cpus`. Where no curve is known: what twice the CPUs
-- would bring, 1.6 times the speed, evenly.
local function gain(app, cpus)
  local with, with_more = speed_milli(app, cpus), speed_milli(app, cpus + 1)
  local part = with and (with_more - with) / with or 0.68 / cpus
  return part * math.max(1, app.weight_milli)
end

function decide(snapshot)
  local apps, left = {}, #snapshot.usable
  for _, app in ipairs(snapshot.apps) do
    if not app.suspended then
      -- Who cannot be resized or may not stand everywhere needs turns and places that TA knows about.
      if not app.resizable or app.within then
        return built_in("TA")
      end
      table.insert(apps, app)
      left = left - app.fewest_cpus
    end
  end
  if #apps == 0 then
    return "idle"
  elseif left < 0 then
    return built_in("TA")
  end

  local widths = {}
  for at, app in ipairs(apps) do
    widths[at] = app.fewest_cpus
  end
  while left > 0 do
    local best, most
    for at, app in ipairs(apps) do
      local gained = widths[at] < app.most_cpus and gain(app, widths[at])
      -- Somebody whom nothing makes faster leaves the CPU idle rather than wait for more threads.
      if gained and gained > 0 and (not most or gained > most) then
        best, most = at, gained
      end
    end
    if not best then
      break
    end
    widths[best], left = widths[best] + 1, left - 1
  end

  -- First everybody keeps what it has, then takes of what is free.
  local free, places = snapshot.usable, {}
  for at, app in ipairs(apps) do
    places[at] = (app.before or cpus()) & free
    places[at] = places[at]:take(widths[at])
    free = free - places[at]
  end
  local trees, report = {}, {}
  for at, app in ipairs(apps) do
    local more = free:take(widths[at] - #places[at])
    places[at], free = places[at] | more, free - more
    trees[at] = run(app, places[at])
    local speed = speed_milli(app, widths[at])
    report[at] = app.name .. ": " .. widths[at] .. " CPUs, "
      .. (speed and string.format("%.1f times as fast as on one", speed / 1000) or "nothing is known of it")
  end
  return { plan = side_by_side(trees), report = report }
end
