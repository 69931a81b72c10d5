-- Equal parts by topology (TA), written in Lua. crates/policy/src/ta.rs is the same in Rust, and tells
-- where the idea comes from; a test (crates/policy/tests/lua.rs) sees to it that both make the same
-- plans on random machines with random programs.
--
--   coplace simulate --machine "pack:4 [numa] l3:1 core:6" --steps 30 --policy docs/policies/lua/ta.lua,TA

words = "equal parts by topology, in Lua"
promise = { equal_shapes = true, share_ratio = 2, waiting = "nobody", keeps_cpus = true }

-- The widest partitions of which there are enough; where there are never enough, the most.
local function shape_for(shapes, count)
  local most = shapes[1]
  for _, shape in ipairs(shapes) do
    if #shape.places >= count then
      return shape
    elseif #shape.places >= #most.places then
      most = shape
    end
  end
  return most
end

-- Its threads lose nothing when they do not run at the same time.
local function uncoordinated(app)
  return app.waits_passively or not app.coschedule
end

-- Programs that share a partition take turns; not on a single CPU, where threads have nobody to wait
-- for, and not where somebody must not stand still.
local function take_turns(part)
  local nobody_waits = true
  for _, app in ipairs(part.apps) do
    if not app.stoppable then
      return false
    end
    nobody_waits = nobody_waits and uncoordinated(app)
  end
  return #part.cpus > 1 and not nobody_waits
end

-- So few threads each that all together are no more than CPUs, where the program lets us choose.
local function thin(app, part)
  local each = math.max(1, #part.cpus // #part.apps)
  local own = math.min(app.most_cpus, #(part.cpus & app.room))
  return run(app, part.cpus, { threads = app.threads or math.max(math.min(own, each), app.fewest_threads) })
end

local function tree_of(part)
  if #part.apps == 1 then
    return run(part.apps[1], part.cpus)
  end
  local trees, weights = {}, {}
  for at, app in ipairs(part.apps) do
    trees[at] = take_turns(part) and run(app, part.cpus) or thin(app, part)
    weights[at] = math.max(1, app.weight_milli)
  end
  if not take_turns(part) then
    return mixed(trees)
  end
  for at, slice_ns in ipairs(slices(weights)) do
    trees[at] = { slice_ns = slice_ns, plan = trees[at] }
  end
  return in_turn(trees)
end

-- Why programs lose CPUs that they had.
local function moves(parts, shape, memory)
  local why = {}
  for _, part in ipairs(parts) do
    for _, app in ipairs(part.apps) do
      if app.before and not (app.before <= part.cpus) then
        why[app.name] = "partitions are " .. shape.width .. " CPUs wide"
          .. (memory.width and ", and were " .. memory.width or "")
      end
    end
  end
  return why
end

function decide(snapshot, memory)
  local apps = {}
  for _, app in ipairs(snapshot.apps) do
    if not app.suspended then
      table.insert(apps, app)
    end
  end
  if #apps == 0 then
    return "idle"
  end
  local shape = shape_for(snapshot.shapes, #apps)
  local parts = spread(shape.places, apps)
  local placed, trees = 0, {}
  for at, part in ipairs(parts) do
    for _, app in ipairs(part.apps) do
      if #(part.cpus & app.room) < app.fewest_cpus then
        -- It cannot shrink to its part and needs turns at its own width: the built-in TA packs those.
        return built_in("TA")
      end
      placed = placed + 1
    end
    trees[at] = tree_of(part)
  end
  if placed < #apps then
    -- Somebody is restricted to CPUs of which no partition has enough.
    return built_in("TA")
  end
  local report = { #apps .. " programs on partitions of " .. shape.width .. " (" .. shape.description .. ")." }
  if #shape.left_over > 0 then
    table.insert(report, { left_over = shape.left_over, width = shape.width })
  end
  return {
    plan = side_by_side(trees),
    memory = { width = shape.width },
    report = report,
    moves = moves(parts, shape, memory),
  }
end
