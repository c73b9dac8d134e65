// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * One unit of a large program with much debug information: -DUNIT=N, and -DMAIN
 * for one of them. Templates on 24 types each, inlined into one another.
 */
#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define NAMESPACE   JOIN(unit_, UNIT)

namespace NAMESPACE
{
template <int N> struct item {
	std::string name;
	std::array<double, N % 7 + 1> value;
	bool operator<(const item &other) const
	{
		return name < other.name;
	}
};

template <int N> std::size_t work(const std::string &text)
{
	std::map<item<N>, std::vector<item<N>>> map;
	std::unordered_map<std::string, std::deque<item<N>>> hash;
	std::istringstream words(text);
	std::vector<item<N>> all;

	for (std::string word; words >> word;) {
		item<N> made{word, {}};

		map[made].push_back(made);
		hash[word].push_front(made);
	}
	for (auto &pair : map)
		std::copy(pair.second.begin(), pair.second.end(), std::back_inserter(all));
	std::sort(all.begin(), all.end());
	std::stable_sort(all.begin(), all.end(),
			 [](const item<N> &a, const item<N> &b) { return b < a; });
	return all.size() + hash.size() +
	       std::count_if(all.begin(), all.end(),
			     [](const item<N> &one) { return one.value[0] > N; });
}

template <int... N> std::size_t work_all(const std::string &text, std::integer_sequence<int, N...>)
{
	return (work<N>(text) + ...);
}
} // namespace NAMESPACE

std::size_t JOIN(run_, UNIT)(const std::string &text)
{
	return NAMESPACE::work_all(text, std::make_integer_sequence<int, 24>());
}

#ifdef MAIN
int main(int argc, char **)
{
	return JOIN(run_, UNIT)(std::string(argc, 'x')) > 3;
}
#endif
