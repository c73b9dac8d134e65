// SPDX-License-Identifier: GPL-3.0-or-later

// gopher: a program of Go's own runtime, without any C. Allocates in two
// goroutines and checks what it has.
//
//	check  "ok" if both have moved on
//	stop   "ended"
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

var rounds [2]uint64

func work(i int) {
	kept := make([][]byte, 64)
	for n := 0; ; n++ {
		block := make([]byte, 1+n%2000)
		block[len(block)-1] = byte(n)
		if old := kept[n%64]; old != nil && old[len(old)-1] != byte(n-64) {
			fmt.Println("a block was overwritten")
			os.Exit(1)
		}
		kept[n%64] = block
		atomic.AddUint64(&rounds[i], 1)
		if n%64 == 0 {
			time.Sleep(200 * time.Microsecond)
		}
	}
}

func check() string {
	for i := range rounds {
		before := atomic.LoadUint64(&rounds[i])
		for n := 0; atomic.LoadUint64(&rounds[i]) == before; n++ {
			if n == 5000 {
				return "stuck"
			}
			time.Sleep(time.Millisecond)
		}
	}
	return "ok"
}

func main() {
	go work(0)
	go work(1)
	fmt.Println("ready")
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() && commands.Text() != "stop" {
		fmt.Println(check())
	}
	fmt.Println("ended")
}
