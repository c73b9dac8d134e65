// SPDX-License-Identifier: GPL-3.0-or-later
// A C++ program: operators new and delete, of libstdc++ or a preloaded allocator.
#include "tests/targets/target.h"

#include <new>
#include <string>
#include <vector>

int main()
{
	char line[64];

	target_begin();
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		std::vector<std::string> strings;

		for (int i = 0; i < 100; i++)
			strings.push_back(std::string(100, 'x'));
		int *array = new int[10];
		int *plain = new (std::nothrow) int;
		KEEP(array);
		KEEP(plain);
		delete[] array;
		delete plain;
		target_say("ok");
	}
	return 0;
}
