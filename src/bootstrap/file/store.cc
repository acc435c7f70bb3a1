#include "bootstrap/file/store.h"

#include <algorithm>
#include <cerrno>
#include <thread>

namespace shardcomm::bootstrap {

using Clock = std::chrono::steady_clock;

Status FileStore::enter(Rank rank, int world_size, const Options& options) {
  const Secret secret(options.job_secret);
  auto joined = FileSession::join({directory_, rank, world_size, secret}, deadline_after(options.init_timeout));
  if (!joined.ok()) return joined.status();
  session_.emplace(std::move(joined).value());
  return {};
}

Result<std::string> FileStore::fetch(std::string_view key, Deadline deadline) {
  constexpr auto kFirstPause = std::chrono::milliseconds(1);
  constexpr auto kLongestPause = std::chrono::milliseconds(50);
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    const bool late = Clock::now() >= deadline;
    const Status trouble = session_->trouble();
    // After the look at the others: a rank may set the key and end between the two.
    Result<std::string> value = session_->look(key);
    if (value.ok() || value.status().native_value() != ENOENT) return value;
    SHARDCOMM_TRY(trouble);
    if (late) return session_->roster().timed_out(key);
    std::this_thread::sleep_until(std::min<Deadline>(deadline, Clock::now() + pause));
  }
}

Status FileStore::forget(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) session_->forget(key);
  return {};
}

}  // namespace shardcomm::bootstrap
