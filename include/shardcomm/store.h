// Where ranks meet before they are connected: a small key-value store. Values are bytes; a key is set once.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "shardcomm/options.h"
#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

// Thread rule: one thread at a time per object, except local stores, which every rank's thread shares through its own
// object.
class SHARDCOMM_EXPORT Store {
 public:
  virtual ~Store() = default;
  // Becomes this rank's place in the meeting. Called once before set/get, by Communicator::create unless the user did;
  // again with the same arguments it does nothing. tcp: rank 0 listens, the others connect, retrying while rank 0
  // starts late, and both sides prove that they know options.job_secret.
  virtual Status join(Rank rank, int world_size, const Options& options) = 0;
  virtual Status set(std::string_view key, std::string_view value) = 0;
  virtual Result<std::string> get(std::string_view key, Deadline deadline) = 0;  // waits for the key

  // Numbers the meetings held over this store, so that their keys differ; every rank counts alike.
  uint64_t next_meeting() noexcept { return meetings_++; }

 private:
  uint64_t meetings_ = 0;
};

// "tcp://host:port" (rank 0 listens), "file:///path" (a directory), "local://name" (threads of one process),
// "env://" (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT or what mpirun and srun set).
SHARDCOMM_EXPORT Result<std::unique_ptr<Store>> open_store(std::string_view uri);

// The place in the job that a launcher (shardcomm run, torchrun, mpirun, srun) gave this process, if any.
struct SHARDCOMM_EXPORT LaunchedRank {
  Rank rank = 0;
  int world_size = 1;
  Rank local_rank = 0;
  static Result<LaunchedRank> from_env();  // kUnavailable without a launcher
};

}  // namespace shardcomm
