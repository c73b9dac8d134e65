// SPDX-License-Identifier: GPL-3.0-or-later

// gopher_cgo: goroutines that allocate by C's malloc, from small stacks, while
// the runtime stops them by signals to collect garbage.
//
//	check   "ok" if they have moved on
//	keep N  allocate N blocks of 100 bytes in keep_blocks(), in C: "kept"
//	stop    "ended"
package main

/*
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void keep_blocks(int count)
{
	for (int i = 0; i < count; i++) {
		void *volatile block = malloc(100);

		(void)block;
	}
}

static int churn(unsigned int n)
{
	unsigned char *data = malloc(1 + n % 3000);
	int same;

	memset(data, (int)n, 1 + n % 3000);
	data = realloc(data, 4000);
	same = data[0] == (unsigned char)n && data[n % 3000] == (unsigned char)n;
	free(data);
	return same;
}
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var rounds [4]uint64

func work(i int) {
	for n := 0; ; n++ {
		if C.churn(C.uint(n)) == 0 {
			fmt.Println("a block was overwritten")
			os.Exit(1)
		}
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
	for i := range rounds {
		go work(i)
	}
	go func() {
		for {
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
		}
	}()
	fmt.Println("ready")
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() && commands.Text() != "stop" {
		if text := commands.Text(); strings.HasPrefix(text, "keep ") {
			count, _ := strconv.Atoi(text[5:])
			C.keep_blocks(C.int(count))
			fmt.Println("kept")
		} else {
			fmt.Println(check())
		}
	}
	fmt.Println("ended")
}
