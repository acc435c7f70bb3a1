// Keys and values shared by threads of one process: what a local store joins.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bootstrap/roster.h"

namespace shardcomm::bootstrap {

// Any thread.
class LocalBoard {
 public:
  Status admit(Rank rank, int world_size);
  void leave(Rank rank);
  Status set(std::string_view key, std::string_view value);
  Result<std::string> get(std::string_view key, Deadline deadline);
  void forget(const std::vector<std::string>& keys);

 private:
  // Those who wait for one key sleep on its own condition, so that a set wakes only them: with a thousand ranks
  // setting a thousand keys, waking everyone would take a million wake-ups.
  struct Waiters {
    std::condition_variable changed;
    int count = 0;
  };
  void fail_waiters();  // lock held

  std::mutex mutex_;
  Roster roster_{0};
  std::unordered_map<std::string, std::shared_ptr<const std::string>> values_;
  std::unordered_map<std::string, Waiters> waiters_;
};

// The board of that name, made if nobody holds one; a name is free again when the last holder is gone.
std::shared_ptr<LocalBoard> local_board(const std::string& name);

}  // namespace shardcomm::bootstrap
