#include "bootstrap/file/session.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/pod.h"
#include "base/text.h"
#include "bootstrap/checked_store.h"

namespace shardcomm::bootstrap {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kTitle = "shardcomm file store";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kSessionPrefix = "session-";
constexpr std::string_view kOurs[] = {"rank.", "left.", "key.", "tmp.", "failure"};
constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(50);
constexpr auto kCheckRanksEvery = std::chrono::milliseconds(250);
constexpr int kRanksPerCheck = 16;  // by each rank: bounds what a poll costs when there are hundreds

std::string myself() {
  char host[256] = "?";
  (void)gethostname(host, sizeof host - 1);
  return fmt::format("pid {} on {}", getpid(), host);
}

// What DIR/session says.
struct Heading {
  std::string id, who;
  int world_size = 0;
  Mac proof{};
};

Mac heading_proof(const Secret& secret, std::string_view id, int world_size) {
  return mac_of(secret, {"shardcomm bootstrap: session", id, std::to_string(world_size)});
}

std::string write_heading(const Heading& heading) {
  const std::string proof(as_bytes(heading.proof));
  const std::vector<std::string> fields = {
      std::string(kTitle), std::string(kVersion), heading.id, heading.who, std::to_string(heading.world_size), proof};
  return pack(fields);
}

Result<Heading> read_heading(const std::string& path) {
  SHARDCOMM_TRY_ASSIGN(const std::string bytes, read_file(path));
  const auto fields = unpack(bytes);
  const auto malformed = [&] { return Status(Code::kFailedPrecondition, path + " is not a session of a file store"); };
  if (!fields || fields->size() < 2 || (*fields)[0] != kTitle) return malformed();
  if ((*fields)[1] != kVersion) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("{} has version {} of the file store, this rank {}: all ranks need the same shardcomm",
                              path, printable((*fields)[1]), kVersion));
  }
  if (fields->size() != 6 || (*fields)[5].size() != Mac{}.size()) return malformed();
  Heading heading{(*fields)[2], (*fields)[3], 0, {}};
  const auto world_size = parse_count((*fields)[4]);
  if (!world_size || *world_size > INT32_MAX || heading.id.find('/') != std::string::npos) return malformed();
  heading.world_size = static_cast<int>(*world_size);
  std::copy((*fields)[5].begin(), (*fields)[5].end(), heading.proof.begin());
  return heading;
}

// The heading of a session whose rank 0 lives.
Result<Heading> await_heading(const std::string& session, Deadline deadline) {
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    const bool living = presence(session) == Presence::kHeld;
    Result<Heading> heading = read_heading(session);
    const bool ended_meanwhile = heading.status().native_value() == ENOENT;
    if (living && !ended_meanwhile) return heading;
    if (Clock::now() >= deadline) {
      std::string text = "rank 0 did not open the meeting in time";
      if (heading.ok()) text += fmt::format(" (the session there is of {}, which has ended)", printable(heading->who));
      return Status(Code::kTimedOut, std::move(text));
    }
    std::this_thread::sleep_until(std::min<Deadline>(deadline, Clock::now() + pause));
  }
}

// Only names that a file store gives; a directory that holds anything else stays.
void remove_session(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool ours = std::any_of(std::begin(kOurs), std::end(kOurs), [&](auto p) { return name.starts_with(p); });
    if (ours) unlink(at->path().c_str());
  }
  rmdir(directory.c_str());
}

void remove_stale_sessions(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(kSessionPrefix)) remove_session(at->path());
  }
}

// True if it is new. Its permissions are the first guard of a file store: only this user may enter.
Result<bool> make_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (mkdir(path.c_str(), 0700) == 0) return true;
  if (errno == EEXIST) return false;
  return Status::native(Origin::kErrno, errno, "mkdir " + path);
}

}  // namespace

FileSession::FileSession(const Place& place, std::string id)
    : directory_(place.directory),
      session_directory_(fmt::format("{}/{}{}", place.directory, kSessionPrefix, id)),
      rank_(place.rank),
      world_size_(place.world_size),
      owner_(getpid()) {}

FileSession::~FileSession() {
  if (getpid() != owner_ || !member_.open()) return;
  (void)rename(rank_path(rank_, false).c_str(), rank_path(rank_, true).c_str());
  if (rank_ != 0) return;
  const std::string session = directory_ + "/session";
  if (same_file(session_.get(), session)) unlink(session.c_str());
  remove_session(session_directory_);
  if (made_directory_) rmdir(directory_.c_str());
}

Result<FileSession> FileSession::join(const Place& place, Deadline deadline) {
  Result<FileSession> session = place.rank == 0 ? make(place) : find(place, deadline);
  if (!session.ok()) return session.status().context(fmt::format("rank {} joins {}", place.rank, place.directory));
  if (place.rank != 0)
    SHARDCOMM_TRY(session->enroll().context(fmt::format("rank {} joins {}", place.rank, place.directory)));
  return session;
}

Result<FileSession> FileSession::make(const Place& place) {
  SHARDCOMM_TRY_ASSIGN(const bool is_new, make_directory(place.directory));
  const std::string session = place.directory + "/session";
  if (presence(session) == Presence::kHeld) {
    const Result<Heading> other = read_heading(session);
    return Status(Code::kUnavailable, fmt::format("the directory is in use by a rank 0 ({}): take another directory",
                                                  other.ok() ? printable(other.value().who) : "unknown"));
  }
  remove_stale_sessions(place.directory);
  SHARDCOMM_TRY_ASSIGN(const Nonce nonce, fresh_nonce());
  const std::string id = hex(std::span(nonce).first(16));
  FileSession made(place, id);
  made.made_directory_ = is_new;
  if (mkdir(made.session_directory_.c_str(), 0700) != 0)
    return Status::native(Origin::kErrno, errno, "mkdir " + made.session_directory_);
  SHARDCOMM_TRY(made.enroll());  // before the session can be seen: without rank 0's file it would be taken for over
  const Heading heading{id, myself(), place.world_size, heading_proof(place.secret, id, place.world_size)};
  const std::string bytes = write_heading(heading);
  SHARDCOMM_TRY_ASSIGN(made.session_, publish({session, made.temporary_path(), bytes, true}));
  return made;
}

Result<FileSession> FileSession::find(const Place& place, Deadline deadline) {
  SHARDCOMM_TRY_ASSIGN(const Heading heading, await_heading(place.directory + "/session", deadline));
  if (!equal(heading.proof, heading_proof(place.secret, heading.id, heading.world_size))) {
    return Status(
        Code::kFailedPrecondition,
        fmt::format("rank 0 ({}) has another job secret (here SHARDCOMM_JOB_SECRET is {}); all ranks need the same",
                    printable(heading.who), place.secret.empty() ? "unset" : "set"));
  }
  FileSession found(place, heading.id);
  if (heading.world_size == place.world_size) return found;
  found.world_size_ = heading.world_size;
  return found.refuse(
      Status(Code::kFailedPrecondition, fmt::format("rank {} ({}) came with world size {}, this meeting has {}",
                                                    place.rank, myself(), place.world_size, heading.world_size)));
}

Status FileSession::enroll() {
  const std::string me = myself();
  Result<Fd> made = publish({rank_path(rank_, false), temporary_path(), me});
  const bool left_before = access(rank_path(rank_, true).c_str(), F_OK) == 0;
  if (made.ok() && !left_before) {
    member_ = std::move(made).value();
    return {};
  }
  if (made.ok()) unlink(rank_path(rank_, false).c_str());
  if (!left_before && made.status().native_value() != EEXIST) return gone_if_missing(made.status());
  return refuse(
      Status(Code::kFailedPrecondition, fmt::format("rank {} joined twice: first {}, then {}", rank_, who(rank_), me)));
}

Status FileSession::refuse(Status why) { return roster().complete() ? why : record(std::move(why)); }

Status FileSession::record(Status failure) {
  const std::string bytes = pack_result(failure);
  (void)publish({path("failure"), temporary_path(), bytes});  // the first one stays
  return failure;
}

Status FileSession::set(std::string_view key, std::string_view value) {
  const Result<Fd> made = publish({path("key." + file_name_of(key)), temporary_path(), value});
  if (made.status().native_value() == EEXIST)
    return Status(Code::kFailedPrecondition, fmt::format("store key '{}' is already set", key));
  return gone_if_missing(made.status());
}

Result<std::string> FileSession::look(std::string_view key) const {
  return read_file(path("key." + file_name_of(key)));
}

void FileSession::forget(std::string_view key) { unlink(path("key." + file_name_of(key)).c_str()); }

Status FileSession::trouble() {
  if (const Result<std::string> failure = read_file(path("failure")); failure.ok())
    return unpack_result(failure.value()).status();
  if (rank_ != 0) SHARDCOMM_TRY(check_rank(0));
  if (Clock::now() < check_after_) return {};
  check_after_ = Clock::now() + kCheckRanksEvery;
  for (int i = 0; i < std::min(kRanksPerCheck, world_size_ - 1); ++i) {
    if (Status lost = check_rank(next_to_check_); !lost.ok()) return record(std::move(lost));
    next_to_check_ = next_to_check_ + 1 < world_size_ ? next_to_check_ + 1 : 1;
  }
  return {};
}

// Absent ranks are no trouble yet, except rank 0, which was there before all others.
Status FileSession::check_rank(Rank rank) const {
  if (rank == rank_) return {};
  switch (presence(rank_path(rank, false))) {
    case Presence::kHeld: return {};
    case Presence::kNone: return rank != 0 ? Status() : Status(Code::kPeerLost, "rank 0 left the meeting");
    case Presence::kAbandoned: break;
  }
  return Status(Code::kPeerLost, fmt::format("rank {} ({}) is gone: it ended without a goodbye", rank, who(rank)));
}

Roster FileSession::roster() const {
  Roster roster(world_size_);
  for (Rank rank = 0; rank < world_size_; ++rank) {
    const bool left = access(rank_path(rank, true).c_str(), F_OK) == 0;
    if (!left && access(rank_path(rank, false).c_str(), F_OK) != 0) continue;
    (void)roster.admit(rank, world_size_, {});
    if (left) roster.leave(rank);
  }
  return roster;
}

std::string FileSession::path(std::string_view name) const { return fmt::format("{}/{}", session_directory_, name); }

std::string FileSession::rank_path(Rank rank, bool left) const {
  return path(fmt::format("{}.{}", left ? "left" : "rank", rank));
}

std::string FileSession::temporary_path() {
  // Two processes may claim one rank: the process id tells their files apart, the address two threads'.
  return path(fmt::format("tmp.{}.{}.{}.{}", rank_, owner_, static_cast<const void*>(this), ++temporaries_));
}

std::string FileSession::who(Rank rank) const {
  Result<std::string> name = read_file(rank_path(rank, false));
  if (!name.ok()) name = read_file(rank_path(rank, true));
  return name.ok() ? printable(name.value()) : "unknown";
}

Status FileSession::gone_if_missing(Status status) const {
  if (status.native_value() != ENOENT) return status;
  return Status(Code::kPeerLost, "rank 0 left the meeting");
}

}  // namespace shardcomm::bootstrap
