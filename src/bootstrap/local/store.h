// "local://name": ranks that are threads of one process.
#pragma once
#include <memory>

#include "bootstrap/checked_store.h"
#include "bootstrap/local/board.h"

namespace shardcomm::bootstrap {

class LocalStore final : public CheckedStore {
 public:
  explicit LocalStore(std::shared_ptr<LocalBoard> board) : board_(std::move(board)) {}
  ~LocalStore() override {
    if (rank_ >= 0) board_->leave(rank_);
  }
  Status forget(const std::vector<std::string>& keys) override {
    board_->forget(keys);
    return {};
  }

 private:
  Status enter(Rank rank, int world_size, const Options&) override {
    SHARDCOMM_TRY(board_->admit(rank, world_size));
    rank_ = rank;
    return {};
  }
  Status keep(std::string_view key, std::string_view value) override { return board_->set(key, value); }
  Result<std::string> fetch(std::string_view key, Deadline deadline) override { return board_->get(key, deadline); }

  std::shared_ptr<LocalBoard> board_;
  Rank rank_ = -1;
};

}  // namespace shardcomm::bootstrap
