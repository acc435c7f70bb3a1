#include "bootstrap/roster.h"

#include <fmt/format.h>

#include "bootstrap/bootstrap.h"

namespace shardcomm::bootstrap {

std::string rank_list(std::span<const Rank> ranks) {
  constexpr size_t kGroupsShown = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t groups = 0;
  for (size_t i = 0; i < ranks.size(); ++groups) {
    if (groups == kGroupsShown) return text + fmt::format(" and {} more", ranks.size() - i);
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;  // two in a row read better apart
    if (groups > 0) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

Status Roster::admit(Rank rank, int world_size, std::string who) {
  if (size() == 0) resize(world_size);
  if (world_size != size()) {
    return refuse(Status(
        Code::kFailedPrecondition,
        fmt::format("rank {} ({}) came with world size {}, this meeting has {}", rank, who, world_size, size())));
  }
  if (rank < 0 || rank >= size()) {
    return refuse(Status(Code::kFailedPrecondition, fmt::format("{} came as rank {} of {}", who, rank, size())));
  }
  Member& place = member(rank);
  if (place.presence != Presence::kAbsent) {
    return refuse(Status(Code::kFailedPrecondition,
                         fmt::format("rank {} joined twice: first {}, then {}", rank, place.who, who)));
  }
  place = {Presence::kJoined, std::move(who)};
  ++joined_;
  return {};
}

Status Roster::refuse(Status why) {
  if (!complete()) fail(why);
  return why;
}

void Roster::leave(Rank rank) {
  if (member(rank).presence == Presence::kJoined) member(rank).presence = Presence::kLeft;
}

void Roster::lose(Rank rank, std::string_view how) {
  if (member(rank).presence != Presence::kJoined) return;
  member(rank).presence = Presence::kLost;
  fail(Status(Code::kPeerLost, fmt::format("rank {} ({}) is gone: {}", rank, member(rank).who, how)));
}

void Roster::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

void Roster::note(std::string text) { note_ = std::move(text); }

std::vector<Rank> Roster::with(Presence presence) const {
  std::vector<Rank> ranks;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].presence == presence) ranks.push_back(static_cast<Rank>(i));
  }
  return ranks;
}

std::string Roster::absent() const {
  const std::vector<Rank> ranks = with(Presence::kAbsent);
  if (ranks.empty()) return {};
  return fmt::format("{} of {} {} not joined", rank_list(ranks), size(), ranks.size() == 1 ? "has" : "have");
}

Status Roster::timed_out(std::string_view key) const {
  std::string text = fmt::format("no value for '{}' in time: ", key);
  const std::string absent_ranks = absent();
  text += absent_ranks.empty() ? fmt::format("all {} ranks have joined", size()) : absent_ranks;
  if (const std::vector<Rank> gone = with(Presence::kLeft); !gone.empty())
    text += fmt::format("; {} {} left", rank_list(gone), gone.size() == 1 ? "has" : "have");
  if (!note_.empty()) text += "; " + note_;
  return Status(Code::kTimedOut, std::move(text));
}

}  // namespace shardcomm::bootstrap
