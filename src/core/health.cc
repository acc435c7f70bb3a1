#include "core/health.h"

#include <fmt/format.h>

namespace shardcomm {

Status Health::here() const {
  if (birthplace_.is_here()) [[likely]]
    return {};
  return Status(Code::kFailedPrecondition,
                fmt::format("rank {}: this process was forked after the communicator was made, which only the process "
                            "that made it can use",
                            rank_));
}

Status Health::failure() const {
  Status failure = control_.failure();
  if (!failure.ok()) flight_.fail(failure);
  return failure;
}

// The first failure is that of all ranks; the one of this rank may come too late.
void Health::abort(const Status& why) const noexcept {
  if (!birthplace_.is_here()) return;
  if (control_.failure().ok()) control_.abort(why);
  (void)failure();
}

Status Health::check() const {
  SHARDCOMM_TRY(here());
  (void)control_.check_peers();
  return failure();
}

}  // namespace shardcomm
