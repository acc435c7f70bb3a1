// Spreading what ranks read over the links between the domains that they are in.
#include <map>

#include "planner/planner.h"

namespace shardcomm {

std::vector<Rank> reading_order(Rank me, std::span<const int> domain_of) {
  std::vector<std::vector<Rank>> domains;  // their members; numbered anew, by their first ranks
  std::map<int, size_t> number_of;
  size_t own = 0, place = 0;  // this rank's domain, and where in it this rank is
  for (size_t r = 0; r < domain_of.size(); ++r) {
    const size_t number = number_of.try_emplace(domain_of[r], domains.size()).first->second;
    if (number == domains.size()) domains.emplace_back();
    if (static_cast<Rank>(r) == me) {
      own = number;
      place = domains[number].size();
    }
    domains[number].push_back(static_cast<Rank>(r));
  }
  std::vector<Rank> order;
  order.reserve(domain_of.size());
  for (size_t step = 0; step < domains.size(); ++step) {
    const std::vector<Rank>& members = domains[(own + step) % domains.size()];
    for (size_t i = 0; i < members.size(); ++i) order.push_back(members[(place + i) % members.size()]);
  }
  return order;
}

}  // namespace shardcomm
