// "file:///directory": ranks of any machines that see one directory.
#pragma once
#include <optional>
#include <string>

#include "bootstrap/checked_store.h"
#include "bootstrap/file/session.h"

namespace shardcomm::bootstrap {

class FileStore final : public CheckedStore {
 public:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {}
  Status forget(const std::vector<std::string>& keys) override;

 private:
  Status enter(Rank rank, int world_size, const Options& options) override;
  Status keep(std::string_view key, std::string_view value) override { return session_->set(key, value); }
  Result<std::string> fetch(std::string_view key, Deadline deadline) override;

  const std::string directory_;
  std::optional<FileSession> session_;
};

}  // namespace shardcomm::bootstrap
