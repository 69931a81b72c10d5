#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs every program at its smallest size in all ways that must not change its result, and in ways
# that must make it fail. usage: test.sh FOLDER-OF-THE-PROGRAMS
set -u
bin=${1:?usage: test.sh FOLDER}
malleable="cg mg ft is lu triad ep amr regions"
all="$malleable rigid pthreads_spin burn"
passed=0 failed=0
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
unset OMP_NUM_THREADS OMP_DYNAMIC OMP_WAIT_POLICY OMP_THREAD_LIMIT OMP_PROC_BIND OMP_PLACES GOMP_SPINCOUNT

report() { # report STATUS NAME…: counts a test, shows what the program said when it failed
    local status=$1
    shift
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok - $*"
    else
        failed=$((failed + 1))
        echo "not ok - $*"
        sed 's/^/    /' "$out/stdout" "$out/stderr"
    fi
}

run() { # run [NAME=VALUE…] PROGRAM [ARGUMENT…]: output into files, exit status in $rc
    timeout 300 env "$@" >"$out/stdout" 2>"$out/stderr"
    rc=$?
}

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$out/stdout"; }
last_line() { tail -n 1 "$out/stdout"; }
verified() { [ $rc -eq 0 ] && [ "$(last_line)" = VERIFIED ] && [ "$(field verified)" = true ]; }

for p in $malleable; do
    reference=
    for threads in 1 2 3; do
        for how in OMP_DYNAMIC=false OMP_DYNAMIC=true OMP_WAIT_POLICY=active OMP_WAIT_POLICY=passive; do
            run OMP_NUM_THREADS=$threads $how "$bin/$p" --size T --json
            reference=${reference:-$(field result)}
            verified && [ "$(field result)" = "$reference" ] &&
                { [ $how = OMP_DYNAMIC=true ] || [ "$(field threads_max)" = $threads ]; }
            report $? "$p gives its result with $threads threads under $how"
        done
    done
    run OMP_NUM_THREADS=4 RESIZE_MAX=4 OMP_WAIT_POLICY=passive LD_PRELOAD="$bin/tests/resize_shim.so" \
        "$bin/$p" --size T --json
    verified && [ "$(field result)" = "$reference" ] && [ "$(field threads_max)" = 4 ] &&
        [ "$(field threads_min)" = 1 ] && [ "$(field team_changes)" -gt 2 ]
    report $? "$p gives its result when every region has another team"
done

for threads in 1 2 3; do
    for how in OMP_DYNAMIC=false OMP_DYNAMIC=true OMP_WAIT_POLICY=active OMP_WAIT_POLICY=passive; do
        run $how "$bin/rigid" --size T --json --threads $threads
        verified
        report $? "rigid gives its result with $threads threads under $how"
    done
    run "$bin/pthreads_spin" --size T --json --threads $threads
    verified && [ "$(field threads_max)" = $threads ]
    report $? "pthreads_spin gives its result with $threads threads"
done
run OMP_THREAD_LIMIT=2 "$bin/rigid" --size T --json --threads 4
verified && [ "$(field threads_max)" -le 2 ]
report $? "rigid accepts fewer threads where the thread limit says so"
run OMP_DYNAMIC=true "$bin/rigid" --size T --json --threads 3 --no-dynamic
verified && [ "$(field threads_min)" = 3 ]
report $? "rigid gets its threads after omp_set_dynamic(0)"

# A busy machine may let it run for less than that.
for _ in {1..20}; do
    run "$bin/burn" --seconds 0.2 --json
    verified && [ "$(field iterations)" -gt 1000000 ] && break
done
verified && [ "$(field iterations)" -gt 1000000 ]
report $? "burn counts its work"
"$bin/burn" --seconds 50 --json >"$out/stdout" 2>"$out/stderr" &
burner=$!
for _ in {1..600}; do # until it has had 50 ms of CPU time
    sleep 0.1
    [ "$(cut -d ' ' -f 14 /proc/$burner/stat)" -ge 5 ] && break
done
kill -TERM $burner
wait $burner
rc=$?
verified && [ "$(field iterations)" -gt 1000000 ]
report $? "burn reports its work when it is terminated"

for p in $all; do
    run "$bin/$p" --size T --json --break
    [ $rc -eq 1 ] && [[ $(last_line) == FAILED:\ * ]] && [ "$(field verified)" = false ]
    report $? "$p fails when a value is corrupted"
    run "$bin/$p" --size T
    [ $rc -eq 0 ] && [ "$(last_line)" = VERIFIED ]
    report $? "$p ends its plain output with VERIFIED"
    for wrong in "--nonsense" "--size" "--size Q" "--size 3x" "--size 0" "--size -5" "--size 99999999999999999999"; do
        run "$bin/$p" $wrong
        [ $rc -eq 2 ] && [ ! -s "$out/stdout" ] && [ "$(wc -l <"$out/stderr")" -eq 1 ]
        report $? "$p refuses '$wrong' with one line and status 2"
    done
done
for iterations in 1 2 3 4 5 6 7; do # the recurrence of triad has a period, the verification must have no blind phase
    run "$bin/triad" --size T --iterations $iterations --break
    [ $rc -eq 1 ] && [[ $(last_line) == FAILED:\ * ]]
    report $? "triad fails when a value is corrupted in $iterations passes"
done
for wrong in "--iterations 0" "--iterations x" "--scale 0" "--scale nan" "--threads 2"; do
    run "$bin/cg" $wrong
    [ $rc -eq 2 ] && [ "$(wc -l <"$out/stderr")" -eq 1 ]
    report $? "cg refuses '$wrong'"
done

run "$bin/regions" --size S --scale 0.1 --json
verified && [ "$(field iterations)" = 7000 ] && [ "$(field regions)" = 7000 ]
report $? "--scale multiplies the iterations of the class"

# The formulas of the README, for the number of cells or elements n.
bytes() { # bytes PROGRAM N FORMULA
    run "$bin/$1" --size "$2" --iterations 1 --json
    verified && [ "$(field working_set_bytes)" -le $(($3 + $3 / 50 + 8192)) ] &&
        [ "$(field working_set_bytes)" -ge $(($3 - $3 / 50 - 8192)) ]
    report $? "the working set of $1 at n=$2 is as the README says, $(($3)) bytes"
}
bytes cg 20000 20000*244
bytes mg 64 65**3*24*8/7
bytes ft 32 32**3*32
bytes is 300000 300000*12+524288
bytes lu 40 42**3*16
bytes triad 100000 100000*24
bytes regions 5000 5000*16
bytes rigid 5000 5000*16
bytes pthreads_spin 5000 5000*16

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
