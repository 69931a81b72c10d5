-- A policy for coplace: which programs run on which CPUs, with how many threads, and in turn with whom.
-- It works as it is; change it, and see what it does:
--
--   coplace policy test FILE                                      is it sound? random machines and programs
--   coplace simulate --machine "pack:2 core:4" --steps 8 --policy FILE,TA     what it does, beside TA
--   coplace simulate set:B --seeds 10 --machine "pack:4 [numa] l3:1 core:6" --policy FILE,TA
--                                                                 what that brings: a table beside TA
--   coplace run --policy FILE ./program                           live
--
-- coplace calls decide whenever something happens: a program comes or ends, another team, other CPUs.
-- The file runs anew each time: what is to last goes into `memory`. There is no clock, no file and no
-- random number here, so that the same always gives the same plan. docs/policies/lua.md tells all.

-- How it is called in tables and in `coplace status`.
words = "my own policy"

-- What it can be held to, by the checker and by `coplace policy test`; leave out what you do not promise.
promise = { waiting = "nobody" }

function decide(snapshot, memory)
  -- 1. Who wants to run? In order of arrival; a user may have suspended some.
  local apps = {}
  for _, app in ipairs(snapshot.apps) do
    if not app.suspended then
      table.insert(apps, app)
    end
  end
  if #apps == 0 then
    return "idle"
  end

  -- 2. How is the machine cut? `shapes` are the ways to cut it into equal parts, the widest first: take
  --    the first that has a part for everybody, else the finest.
  local shape = snapshot.shapes[#snapshot.shapes]
  for _, candidate in ipairs(snapshot.shapes) do
    if #candidate.places >= #apps then
      shape = candidate
      break
    end
  end

  -- 3. Who gets which part? `spread` deals them out so that as many as can stay where they are.
  local trees, placed = {}, 0
  for _, part in ipairs(spread(shape.places, apps)) do
    local here = {}
    for _, app in ipairs(part.apps) do
      -- Threads that spin for one another must not have fewer CPUs than threads. Who cannot shrink to
      -- its part needs turns at its own width; the built-in policies know how.
      if #(part.cpus & app.room) < app.fewest_cpus then
        return built_in("TA")
      end
      table.insert(here, run(app, part.cpus))
      placed = placed + 1
    end
    -- Several in one part: left to the kernel. `in_turn(here)` would have them take turns.
    table.insert(trees, #here == 1 and here[1] or mixed(here))
  end
  if placed < #apps then
    return built_in("TA") -- somebody may use only CPUs that no part has enough of
  end

  -- 4. What `coplace explain` shows, and what is to be remembered.
  local report = { #apps .. " on parts of " .. shape.width .. " CPUs." }
  if memory.width and memory.width ~= shape.width then
    table.insert(report, "Parts were " .. memory.width .. " CPUs wide before.")
  end
  return { plan = side_by_side(trees), report = report, memory = { width = shape.width } }
end
