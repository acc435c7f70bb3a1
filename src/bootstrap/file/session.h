// One meeting in the directory of a file store, and how ranks tell a living one from what an earlier job left behind.
//
//   DIR/session               names the session; locked by rank 0 for as long as its store lives
//   DIR/session-HEX/rank.R    rank R joined; locked by it likewise
//   DIR/session-HEX/left.R    the same file after R said goodbye
//   DIR/session-HEX/failure   why the meeting failed: a contradiction between ranks, or one that is gone
//   DIR/session-HEX/key.NAME  a value
//
// A session file without a lock is stale: others wait until rank 0 replaces it, and rank 0 removes the stale directory.
#pragma once
#include <string>

#include "bootstrap/auth.h"
#include "bootstrap/file/files.h"
#include "bootstrap/roster.h"

namespace shardcomm::bootstrap {

// One thread at a time. Destruction says goodbye; rank 0's removes the session.
class FileSession {
 public:
  struct Place {
    std::string directory;
    Rank rank;
    int world_size;
    const Secret& secret;
  };
  // Rank 0 makes a session, the others wait for one.
  static Result<FileSession> join(const Place& place, Deadline deadline);
  FileSession(FileSession&&) noexcept = default;
  FileSession& operator=(FileSession&&) = delete;
  ~FileSession();

  Status set(std::string_view key, std::string_view value);
  Result<std::string> look(std::string_view key) const;  // kUnavailable where it is not set
  void forget(std::string_view key);

  // Why waiting on is pointless, or success: a failed meeting, rank 0 gone, or (looking at some of them each time)
  // another rank gone.
  Status trouble();
  Roster roster() const;  // as the directory shows it now

 private:
  FileSession(const Place& place, std::string id);
  static Result<FileSession> make(const Place& place);
  static Result<FileSession> find(const Place& place, Deadline deadline);
  Status enroll();
  Status refuse(Status why);      // records it for all while ranks are missing
  Status record(Status failure);  // for all
  Status check_rank(Rank rank) const;
  std::string path(std::string_view name) const;
  std::string rank_path(Rank rank, bool left) const;
  std::string temporary_path();
  std::string who(Rank rank) const;
  Status gone_if_missing(Status status) const;

  std::string directory_, session_directory_;
  Rank rank_;
  int world_size_;
  Fd session_, member_;  // the locks: rank 0's, everyone's
  pid_t owner_;
  bool made_directory_ = false;
  uint64_t temporaries_ = 0;
  Rank next_to_check_ = 1;
  Deadline check_after_{};
};

}  // namespace shardcomm::bootstrap
