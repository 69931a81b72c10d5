// Go's goroutines on one processor.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

func told(name string, count int, began time.Time) {
	fmt.Printf("%s %.2f\n", name, float64(time.Since(began).Nanoseconds())/float64(count))
}

func fib(n int) int {
	if n < 2 {
		return n
	}
	other := make(chan int, 1)
	go func() { other <- fib(n - 1) }()
	here := fib(n - 2)
	return here + <-other
}

func main() {
	scale := 100
	if len(os.Args) > 1 {
		scale, _ = strconv.Atoi(os.Args[1])
	}
	runtime.GOMAXPROCS(1)
	count := 2000 * scale
	done := make(chan bool)
	go func() {
		for at := 0; at < count; at++ {
			runtime.Gosched()
		}
		done <- true
	}()
	began := time.Now()
	for at := 0; at < count; at++ {
		runtime.Gosched()
	}
	told("yield", 2*count, began)
	<-done

	began = time.Now()
	for at := 0; at < count; at++ {
		result := make(chan int, 1)
		go func() { result <- at }()
		<-result
	}
	told("create-join", count, began)

	here, there := make(chan bool), make(chan bool)
	go func() {
		for at := 0; at < count; at++ {
			<-here
			there <- true
		}
	}()
	began = time.Now()
	for at := 0; at < count; at++ {
		here <- true
		<-there
	}
	told("blocking-switch", 2*count, began)

	times := max(scale/10, 1)
	began = time.Now()
	for at := 0; at < times; at++ {
		fib(20)
	}
	told("fork-join", 10945*times, began)
}
