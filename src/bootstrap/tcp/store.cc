#include "bootstrap/tcp/store.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>

#include "base/log.h"

namespace shardcomm::bootstrap {
namespace {

// Signals stay with the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

void run_meeting(TcpMeeting* meeting) noexcept {
  try {
    meeting->run();
  } catch (const std::exception& e) {  // out of memory: connections close with the meeting, so all ranks notice
    log(Level::kError, "rank 0's store ended: {}", e.what());
  }
}

Status check_file_limit(int world_size) {
  constexpr rlim_t kBesides = 64;  // strangers, and the rest of the process
  rlimit files{};
  const auto need = static_cast<rlim_t>(world_size) + kBesides;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= need) return {};
  return Status(Code::kUnavailable,
                fmt::format("rank 0 of {} needs {} file descriptors, the limit is {}: raise it with ulimit -n",
                            world_size, need, files.rlim_cur));
}

void warn_if_open_to_all(const std::vector<Address>& addresses, const Options& options) {
  const auto beyond =
      std::find_if(addresses.begin(), addresses.end(), [](const Address& a) { return !a.is_loopback(); });
  if (beyond == addresses.end() || !options.job_secret.empty()) return;
  log(Level::kWarn,
      "rank 0 listens on {} without a job secret, anyone who reaches it can join: set SHARDCOMM_JOB_SECRET",
      beyond->text());
}

}  // namespace

Result<std::unique_ptr<TcpServer>> TcpServer::start(TcpMeeting::Setup setup) {
  SHARDCOMM_TRY_ASSIGN(auto meeting, TcpMeeting::open(std::move(setup)));
  std::unique_ptr<TcpServer> server(new TcpServer(std::move(meeting)));
  try {
    const SignalsBlocked blocked;  // the new thread inherits it
    server->thread_ = std::thread(run_meeting, server->meeting_.get());
  } catch (const std::system_error& e) {
    return Status::native(Origin::kErrno, e.code().value(), "start the thread of rank 0's store");
  }
  pthread_setname_np(server->thread_.native_handle(), "shardcomm-store");
  return server;
}

TcpServer::~TcpServer() {
  if (!thread_.joinable()) return;
  meeting_->stop();
  thread_.join();
}

Status TcpStore::enter(Rank rank, int world_size, const Options& options) {
  const Deadline deadline = deadline_after(options.init_timeout);
  owner_ = getpid();
  set_timeout_ = options.init_timeout;
  if (world_size == 1) {
    alone_ = std::make_unique<LocalBoard>();
    return alone_->admit(rank, world_size);
  }
  if (rank == 0) return serve(world_size, options);
  const Secret secret(options.job_secret);
  SHARDCOMM_TRY_ASSIGN(client_, TcpClient::dial({endpoint_, rank, world_size, secret}, deadline));
  return {};
}

Status TcpStore::serve(int world_size, const Options& options) {
  SHARDCOMM_TRY(check_file_limit(world_size));
  SHARDCOMM_TRY_ASSIGN(const std::vector<Address> addresses, resolve(endpoint_));
  SHARDCOMM_TRY_ASSIGN(std::vector<Fd> listeners, listen_on(endpoint_, addresses));
  warn_if_open_to_all(addresses, options);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return Status::native(Origin::kErrno, errno, "socketpair of rank 0's store");
  client_.emplace(FrameStream(Fd(pair[0])));
  TcpMeeting::Setup setup{std::move(listeners), Fd(pair[1]), world_size, Secret(options.job_secret)};
  SHARDCOMM_TRY_ASSIGN(server_, TcpServer::start(std::move(setup)));
  log(Level::kInfo, "rank 0 listens on {} for {} ranks", endpoint_.text(), world_size);
  return {};
}

TcpStore::~TcpStore() {
  if (getpid() != owner_) {
    (void)server_.release();  // its thread is not in this process: leaked on purpose, as the parent still uses it
  } else if (client_) {
    client_->say_goodbye();
  }
}

Status TcpStore::keep(std::string_view key, std::string_view value) {
  if (alone_) return alone_->set(key, value);
  return client_->set(key, value, deadline_after(set_timeout_));
}

Result<std::string> TcpStore::fetch(std::string_view key, Deadline deadline) {
  if (alone_) return alone_->get(key, deadline);
  return client_->get(key, deadline);
}

Status TcpStore::forget(const std::vector<std::string>& keys) {
  if (alone_) {
    alone_->forget(keys);
    return {};
  }
  return client_->forget(pack(keys), deadline_after(set_timeout_));
}

}  // namespace shardcomm::bootstrap
