---@meta coplace
-- What a policy in Lua can use, for editors with a Lua language server (LuaLS). It is never run.
-- docs/policies/lua.md explains it. `coplace policy new` writes this file anew.

-- What a policy defines ---------------------------------------------------------------------------

---How the policy is called, in a few words.
---@type string?
words = nil

---What the checker may hold the policy to, beyond what holds for every plan.
---@class coplace.Promise
---@field equal_shapes? boolean Parts of resizable programs are units of the machine or equal fractions of one, all alike.
---@field keeps_cpus? boolean No more programs are moved than the parts demand, or `moves` says why.
---@field share_ratio? number The CPU shares of equal programs differ by this factor at most.
---@field waiting? "nobody"|"in order of arrival"|integer Who waits, and until how many programs have ended.

---@type coplace.Promise?
promise = nil

---What is to run where from now on. Called when something has happened.
---@param snapshot coplace.Snapshot
---@param memory table What the last decision left; empty at first.
---@return coplace.Plan|string|coplace.Decision
function decide(snapshot, memory) end

---@class coplace.LeftOver CPUs in no part, which a policy that promises `equal_shapes` has to report.
---@field left_over coplace.AnyCpus
---@field width? integer CPUs in a part.

---@class coplace.Standstill Programs stand still for longer than the settings want.
---@field standstill_ns integer

---@class coplace.Decision
---@field plan coplace.Plan|string Who is not in it is suspended, if a user asked for that, or waits.
---@field memory? table Plain data for the next decision; without it `memory` stays, with what was changed in it.
---@field wake_at_ns? integer Ask again at this time even if nothing happens.
---@field report? (string|coplace.LeftOver|coplace.Standstill)[]|string Why, for `coplace explain`.
---@field moves? table<string, string> Why a program (by name) loses CPUs that it had.

-- What it is told -----------------------------------------------------------------------------------

---@class coplace.Snapshot
---@field now_ns integer Nanoseconds since the scheduler began.
---@field apps coplace.App[] Programs in order of arrival.
---@field usable coplace.Cpus CPUs to divide.
---@field allowed coplace.Cpus `usable`, and what unmanaged programs or a quota take.
---@field load_average_15min_milli integer In thousandths.
---@field shapes coplace.Shape[] The ways to cut `usable` into equal parts, the widest first.
---@field machine coplace.Machine
---@field settings coplace.Settings

---@class coplace.App
---@field name string
---@field program string The program that it is a run of: `cg` of `cg` and `cg.2`.
---@field arrived_ns integer
---@field malleability "rigid"|"moldable"|"malleable"|"evolving"
---@field resizable boolean Its next team is as wide as it is told.
---@field threads integer? Its number of threads where nobody can change it.
---@field fewest_cpus integer Fewest CPUs it may be given: with fewer its threads would spin for one another.
---@field most_cpus integer Most CPUs that it can use.
---@field fewest_threads integer Fewest threads that it can be asked to run with.
---@field min_threads integer As it demands.
---@field max_threads integer? As it demands.
---@field weight_milli integer Its share relative to others, 1000 is one.
---@field coschedule boolean Its threads must run at the same time.
---@field team integer? Threads with which it runs now.
---@field waits_passively boolean Its threads sleep while they wait.
---@field stoppable boolean It may take turns and wait.
---@field suspended boolean A user asked that it stand still.
---@field room coplace.Cpus Where it may stand.
---@field within coplace.Cpus? Where it must stay, if it is restricted.
---@field before coplace.Cpus? Where it stood last.
---@field speedup_milli table<integer, integer>? What is known of its curve: by threads, its speed in thousandths of one thread's. `speed_milli` reads between them.
---@field evidence coplace.Evidence What else is known of it.
---@field used_ns integer CPU time that plans have given to its threads so far.
---@field entitled_ns integer CPU time that its weight has entitled it to so far.

---What was learned about a program; what is not known is nil.
---@class coplace.Evidence
---@field left_ns? coplace.Known What is left of its work, as time on one CPU alone.
---@field bandwidth_milli? coplace.Known Share of a NUMA node's memory bandwidth that it asks for when it has the whole node, in thousandths.
---@field cache_milli? coplace.Known How much slower it is when all of a node's last-level cache belongs to others, in thousandths of its time with the cache to itself.
---@field move_ns? coplace.Known Running time that it loses when it goes to another NUMA node and its memory follows.

---@class coplace.Known
---@field value integer In the unit at the end of the name.
---@field error_milli integer How far off it may be, in thousandths of the value.
---@field source "measured"|"remembered" Seen in this run, or remembered from earlier ones.

---@class coplace.Shape
---@field width integer CPUs of each part.
---@field places coplace.Cpus[] The parts.
---@field left_over coplace.Cpus CPUs in no part.
---@field description string

---@alias coplace.Level "cluster"|"node"|"box"|"package"|"numa"|"llc"|"group"|"core"|"pu"

---@class coplace.Machine
---@field name string
---@field cpus coplace.Cpus
---@field root coplace.Object
---@field levels table<coplace.Level, coplace.Object[]> All objects of a level; none where the machine lacks it.
---@field caches coplace.Cache[]
---@field capacities? table<integer, integer> By CPU, 1024 for the fastest; none where all are alike.
---@field distances? { nodes: integer[], matrix: integer[][] } Between NUMA nodes, 10 is local.

---@class coplace.Object
---@field level coplace.Level
---@field logical_index integer
---@field os_index integer?
---@field cpus coplace.Cpus
---@field children coplace.Object[]

---@class coplace.Cache
---@field level integer
---@field cpus coplace.Cpus
---@field size_bytes integer?
---@field line_bytes integer?

---What a user has set, for whichever policy heeds it; docs/formats/config.md tells what each means.
---@class coplace.Settings
---@field slice_ns integer How long a turn lasts.
---@field min_slice_ns integer No turn is shorter.
---@field max_still_ns integer For how long a program may stand still while others have their turn.
---@field turn_mode "strict"|"filling" Whether who is not in turn may use what others leave idle.
---@field allowed_widths integer[]? Widths of parts that may be used, in CPUs.
---@field upper_threshold integer Programs beyond the switching point before parts become narrower.
---@field lower_threshold integer Programs below it before they become wider.
---@field hold_ns integer How long a width is held at least.
---@field level_decision "global"|"local"
---@field rebalance_every_ns integer? How often programs move to even out parts.
---@field rebalance_within_nodes boolean That moves nobody to another NUMA node.
---@field neighbours? "twins"|"profile"|"load_rates"|"predicted" By what neighbours are chosen; `predicted_slowdown` tells of two.
---@field settle_ns integer How long nobody must have come or left before the situation is stable.
---@field grace_ns integer How long a program keeps its part while its team is too wide for the new one.
---@field without ("widths"|"neighbours"|"homes"|"parity")[] Parts of a policy that are left out, to see what each brings.

-- CPU sets ------------------------------------------------------------------------------------------

---A set of CPUs; never changed. `a & b`, `a | b`, `a - b`, `#a`, `a == b`, `a <= b` (within), tostring(a).
---@class coplace.Cpus
---@operator band(coplace.AnyCpus): coplace.Cpus
---@operator bor(coplace.AnyCpus): coplace.Cpus
---@operator sub(coplace.AnyCpus): coplace.Cpus
---@operator len: integer
local Cpus = {}

---@alias coplace.AnyCpus coplace.Cpus|string|integer|integer[]

---The CPUs as a list of numbers.
---@return integer[]
function Cpus:list() end

---@param cpu integer
---@return boolean
function Cpus:contains(cpu) end

---Whether both have a CPU in common.
---@param other coplace.AnyCpus
---@return boolean
function Cpus:meets(other) end

---@return integer?
function Cpus:lowest() end

---So many of them, those of `first` before others.
---@param count integer
---@param first? coplace.AnyCpus
---@return coplace.Cpus
function Cpus:take(count, first) end

---A set: cpus("0-3,8"), cpus { 0, 1 }, cpus(5), cpus().
---@param from? coplace.AnyCpus
---@return coplace.Cpus
function cpus(from) end

-- Plans ---------------------------------------------------------------------------------------------

---A part of a plan; tostring(plan) is its text.
---@class coplace.Plan
---@field cpus coplace.Cpus All that it uses at some time.

---One program on what it may use of some CPUs, with as many threads as it can use there. With more
---threads than CPUs it is `mixed`.
---@param app coplace.App|string
---@param cpus coplace.AnyCpus
---@param how? { threads?: integer, bind?: "free"|"each", memory?: "stay"|"follow", lends?: boolean }
---@return coplace.Plan
function run(app, cpus, how) end

---Disjoint places, at the same time.
---@param parts (coplace.Plan|string)[]
---@return coplace.Plan
function side_by_side(parts) end

---The same place, one after the other: a list of plans, or of `{ slice_ns = …, plan = … }`.
---@param slots (coplace.Plan|string|{ slice_ns?: integer, plan: coplace.Plan|string })[]
---@param how? { slice_ns?: integer, mode?: "strict"|"filling" }
---@return coplace.Plan
function in_turn(slots, how) end

---Overlapping, left to the kernel; on a CPU in `owners` its owner's threads go first.
---@param parts (coplace.Plan|string)[]
---@param owners? table<integer, coplace.App|string>
---@return coplace.Plan
function mixed(parts, owners) end

-- Help ----------------------------------------------------------------------------------------------

---What a built-in policy would do; what it says and remembers is kept for it.
---@param policy "TA"|"CO"|"LV"|"EQ"|"BP"|"UE"|"LA"|"adaptive"|"twins"|"LIRA"|"fixed"
---@return coplace.Plan
function built_in(policy) end

---Deals programs out over disjoint places: one each while there are enough, else evenly, and so that as
---many CPUs as can be stay with whom they were. Who may use none of the places is left out.
---@param places coplace.AnyCpus[]
---@param apps coplace.App[]
---@return { cpus: coplace.Cpus, apps: coplace.App[] }[]
function spread(places, apps) end

---Lengths of slots in proportion to `claims`, within what the settings allow.
---@param claims integer[]
---@param period_ns? integer All of them together.
---@return integer[]
function slices(claims, period_ns) end

---Speed with so many threads in thousandths of one thread's speed: on a straight line between those of
---`app.speedup_milli`. Nothing where no curve is known.
---@param app coplace.App|string
---@param threads integer
---@return integer?
function speed_milli(app, threads) end

---How much slower one program is beside another, by what `settings.neighbours` names: its time over its time
---alone, and how far off that may be in thousandths of it. Nothing where nothing is known of the two.
---@param app coplace.App|string
---@param beside coplace.App|string
---@return integer? slowdown_milli
---@return integer? error_milli
function predicted_slowdown(app, beside) end

---Adds a line to the report.
---@param ... any
function print(...) end
