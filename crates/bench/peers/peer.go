// Goroutines: what a benchmark runs beside sinew. Called with a workload, a number of tasks and of rounds for each; says how many operations
// were done, and in how many nanoseconds.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	capacity   = 128
	consumers  = 4
	yieldEvery = 16
)

func main() {
	tasks, rounds := number(2), number(3)
	workloads := map[string]func(int, int) int{"channel": channel, "mutex": mutex, "pingpong": pingpong}
	run, known := workloads[os.Args[1]]
	if !known {
		panic("no such workload")
	}
	begin := time.Now()
	done := run(tasks, rounds)
	fmt.Println(done, time.Since(begin).Nanoseconds())
}

func number(place int) int {
	value, err := strconv.Atoi(os.Args[place])
	if err != nil {
		panic(err)
	}
	return value
}

// Sums what so many goroutines return.
func joined(number int, body func() int) int {
	results := make(chan int)
	for i := 0; i < number; i++ {
		go func() { results <- body() }()
	}
	sum := 0
	for i := 0; i < number; i++ {
		sum += <-results
	}
	return sum
}

func channel(producers, rounds int) int {
	messages := make(chan uint64, capacity)
	var sending sync.WaitGroup
	sending.Add(producers)
	for i := 0; i < producers; i++ {
		go func() {
			for value := 0; value < rounds; value++ {
				messages <- uint64(value)
			}
			sending.Done()
		}()
	}
	go func() {
		sending.Wait()
		close(messages)
	}()
	return joined(consumers, func() int {
		count := 0
		for range messages {
			count++
		}
		return count
	})
}

func mutex(tasks, rounds int) int {
	var lock sync.Mutex
	total := 0
	sum := joined(tasks, func() int {
		for round := 1; round <= rounds; round++ {
			lock.Lock()
			total++
			if round%yieldEvery == 0 {
				runtime.Gosched()
			}
			lock.Unlock()
		}
		return rounds
	})
	if sum != total {
		panic("an addition was lost")
	}
	return total
}

func pingpong(_, rounds int) int {
	ping, pong := make(chan uint64), make(chan uint64)
	go func() {
		for value := range ping {
			pong <- value + 1
		}
		close(pong)
	}()
	done := 0
	for round := 0; round < rounds; round++ {
		ping <- uint64(round)
		if <-pong == uint64(round)+1 {
			done++
		}
	}
	close(ping)
	return done
}
