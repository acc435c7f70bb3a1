// What all kinds of stores check alike, so that each kind is only about its own way of keeping values.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/store.h"

namespace shardcomm::bootstrap {

class CheckedStore : public Store {
 public:
  Status join(Rank rank, int world_size, const Options& options) final;
  Status set(std::string_view key, std::string_view value) final;
  Result<std::string> get(std::string_view key, Deadline deadline) final;

  // Frees values that nobody will ask for again. Rank 0 only.
  virtual Status forget(const std::vector<std::string>& keys) = 0;

 private:
  // Arguments are checked, and enter has succeeded once before the others are called.
  virtual Status enter(Rank rank, int world_size, const Options& options) = 0;
  virtual Status keep(std::string_view key, std::string_view value) = 0;
  // A deadline that has passed still looks once.
  virtual Result<std::string> fetch(std::string_view key, Deadline deadline) = 0;

  Rank rank_ = -1;  // until joined
  int world_size_ = 0;
};

Status check_place(Rank rank, int world_size);  // 0 <= rank < world_size

Deadline deadline_after(std::chrono::milliseconds timeout);  // of any length

}  // namespace shardcomm::bootstrap
