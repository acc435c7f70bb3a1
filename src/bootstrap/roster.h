// Who belongs to a meeting, who is missing, and why it failed if it did. Every kind of store keeps one.
// Not thread-safe: its owner is one thread or holds a lock.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm::bootstrap {

// "rank 3", "ranks 1, 3, 5-8"; after 16 groups "and 40 more". Ranks in rising order.
class Roster {
 public:
  // 0: the first rank that is admitted says how many there are.
  explicit Roster(int world_size) { resize(world_size); }

  // kFailedPrecondition if the rank joined before or counts another number of ranks. As long as ranks are missing, such
  // a contradiction fails the whole meeting: it could only end in a deadline. Later it concerns the newcomer alone.
  Status admit(Rank rank, int world_size, std::string who);
  Status refuse(Status why);  // the same for other contradictions; gives `why` back

  void leave(Rank rank);  // said goodbye
  void lose(Rank rank, std::string_view how);
  void fail(const Status& why);  // the first failure stays
  void note(std::string text);   // told with the next timeouts; the last one stays

  const Status& failure() const { return failure_; }
  bool complete() const { return joined_ == size() && joined_ > 0; }
  int size() const { return static_cast<int>(members_.size()); }

  std::string absent() const;  // "ranks 1, 3 of 4 have not joined", or empty
  Status timed_out(std::string_view key) const;

 private:
  enum class Presence : uint8_t { kAbsent, kJoined, kLeft, kLost };
  struct Member {
    Presence presence = Presence::kAbsent;
    std::string who;
  };
  void resize(int world_size) { members_.resize(static_cast<size_t>(world_size)); }
  Member& member(Rank rank) { return members_[static_cast<size_t>(rank)]; }
  std::vector<Rank> with(Presence presence) const;

  std::vector<Member> members_;
  int joined_ = 0;  // ever
  Status failure_;
  std::string note_;
};

}  // namespace shardcomm::bootstrap
