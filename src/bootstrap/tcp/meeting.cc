// The loop, and how connections come and go. What they may ask is in requests.cc.
#include "bootstrap/tcp/meeting.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"

namespace shardcomm::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kHandshakeLimit = std::chrono::seconds(2);
constexpr auto kStrangerGrace = std::chrono::milliseconds(200);  // a handshake of ours takes a few milliseconds
constexpr auto kAcceptPause = std::chrono::milliseconds(50);
constexpr size_t kSpareStrangers = 256;  // beside the ranks, which may all knock at once
constexpr size_t kOwnFds = 64;           // for the rest of the process
constexpr int kAcceptBatch = 64;
constexpr int kLastReads = 16;

constexpr uint64_t kStopTag = 0, kListenTag = 1;  // other tags are Connection pointers

size_t stranger_limit(size_t world_size) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kSpareStrangers;
  const size_t taken = world_size + kOwnFds;
  const size_t left = files.rlim_cur > taken ? static_cast<size_t>(files.rlim_cur) - taken : 0;
  return std::clamp<size_t>(left, 16, world_size + kSpareStrangers);
}

}  // namespace

TcpMeeting::TcpMeeting(Setup setup)
    : setup_(std::move(setup)),
      roster_(setup_.world_size),
      stranger_limit_(stranger_limit(static_cast<size_t>(setup_.world_size))) {}

Result<std::unique_ptr<TcpMeeting>> TcpMeeting::open(Setup setup) {
  std::unique_ptr<TcpMeeting> meeting(new TcpMeeting(std::move(setup)));
  SHARDCOMM_TRY(meeting->prepare());
  return meeting;
}

Status TcpMeeting::watch(int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Status::native(Origin::kErrno, errno, "epoll_ctl of rank 0's store");
}

Status TcpMeeting::prepare() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  stop_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.open() || !stop_event_.open())
    return Status::native(Origin::kErrno, errno, "epoll_create and eventfd of rank 0's store");
  SHARDCOMM_TRY(watch(stop_event_.get(), kStopTag));
  for (const Fd& listener : setup_.listeners) SHARDCOMM_TRY(watch(listener.get(), kListenTag));
  SHARDCOMM_TRY(roster_.admit(0, setup_.world_size, fmt::format("pid {}, which keeps the store", getpid())));
  Connection& own = members_.emplace_back();
  own.self = members_.begin();
  own.fd = std::move(setup_.own);
  own.state = Connection::State::kMember;
  own.rank = 0;
  return watch(own.fd.get(), reinterpret_cast<uint64_t>(&own));
}

void TcpMeeting::stop() {
  const uint64_t one = 1;
  (void)!write(stop_event_.get(), &one, sizeof one);
}

void TcpMeeting::run() {
  std::array<epoll_event, 256> events;
  while (!stopping_) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms());
    for (int i = 0; i < count; ++i)
      serve(events[static_cast<size_t>(i)].data.u64, events[static_cast<size_t>(i)].events);
    expire();
    settle_touched();
    if (!accepting_ && Clock::now() >= accept_again_) pause_accepting(false);
    closed_.clear();  // not before: this round's events may still name them
  }
  farewell();
}

void TcpMeeting::serve(uint64_t tag, uint32_t events) {
  if (tag == kStopTag) {
    stopping_ = true;
  } else if (tag == kListenTag) {
    accept_some();
  } else {
    handle(*reinterpret_cast<Connection*>(tag), events);
  }
}

void TcpMeeting::accept_some() {
  for (const Fd& listener : setup_.listeners) {
    for (int i = 0; i < kAcceptBatch; ++i) {
      if (!make_room()) return pause_accepting(true);
      Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd.open()) {
        greet(std::move(fd));
        continue;
      }
      const int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK) break;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        if (!strangers_.empty()) close(strangers_.front());
        return pause_accepting(true);
      }  // others concern that connection alone
    }
  }
}

bool TcpMeeting::make_room() {
  if (strangers_.size() < stranger_limit_) return true;
  if (Clock::now() - strangers_.front().accepted < kStrangerGrace) return false;
  close(strangers_.front());
  return true;
}

void TcpMeeting::pause_accepting(bool paused) {
  if (paused) accept_again_ = Clock::now() + kAcceptPause;
  if (paused != accepting_) return;
  accepting_ = !paused;
  for (const Fd& listener : setup_.listeners) {
    epoll_event event{};
    event.events = accepting_ ? uint32_t{EPOLLIN} : 0u;
    event.data.u64 = kListenTag;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.get(), &event);
  }
}

void TcpMeeting::greet(Fd fd) {
  if (!tune_connection(fd.get()).ok()) return;
  Connection& c = strangers_.emplace_back();
  c.self = std::prev(strangers_.end());
  c.peer = peer_text(fd.get());
  c.fd = std::move(fd);
  c.accepted = Clock::now();
  set_timer(c, c.accepted + kHandshakeLimit);
  if (!watch(c.fd.get(), reinterpret_cast<uint64_t>(&c)).ok()) close(c);
}

void TcpMeeting::handle(Connection& c, uint32_t events) {
  if (c.state == Connection::State::kClosed) return;
  if ((events & EPOLLOUT) != 0) settle(c);
  if (c.state == Connection::State::kClosed) return;
  if (!c.has_output()) {
    const Connection::Io io = c.read_some();
    work(c);  // also the last words of one that closed
    if (io == Connection::Io::kClosed) return gone(c, "its connection closed without a goodbye");
    if (io == Connection::Io::kFailed) return gone(c, "its connection broke: " + c.io_error);
  } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    return gone(c, "its connection broke");
  }
  settle(c);
}

void TcpMeeting::work(Connection& c) {
  using State = Connection::State;
  while (c.state != State::kClosed && c.state != State::kLeaving) {
    if (c.has_output()) settle(c);
    if (c.has_output() || c.state == State::kClosed) return;
    Frame frame{};
    const bool is_member = c.state == State::kMember;
    const Scan scan = scan_frame(c.in, is_member ? kMemberBodyLimit : kStrangerBodyLimit, frame);
    if (scan == Scan::kMore) return;
    if (scan == Scan::kBad) return gone(c, "it does not speak the store's protocol");
    obey(c, frame);
    c.in.erase(0, frame.bytes);
  }
}

void TcpMeeting::settle(Connection& c) {
  if (c.state == Connection::State::kClosed) return;
  if (c.flush() == Connection::Io::kFailed) return gone(c, "its connection broke: " + c.io_error);
  if (c.state == Connection::State::kLeaving && !c.has_output()) {
    shutdown(c.fd.get(), SHUT_WR);
    return close(c);
  }
  if (c.has_output() == c.watching_output) return;
  c.watching_output = c.has_output();
  epoll_event event{};
  event.events = c.watching_output ? EPOLLOUT : EPOLLIN;
  event.data.u64 = reinterpret_cast<uint64_t>(&c);
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.fd.get(), &event);
}

void TcpMeeting::settle_touched() {
  for (size_t i = 0; i < touched_.size(); ++i) settle(*touched_[i]);  // may touch more
  touched_.clear();
}

void TcpMeeting::gone(Connection& c, const std::string& how) {
  if (c.state == Connection::State::kClosed) return;
  if (c.state == Connection::State::kMember) {
    roster_.lose(c.rank, how);
    close(c);
    return fail_pending();
  }
  log(Level::kDebug, "rank 0 dropped a connection from {} before it proved the job secret: {}", c.peer, how);
  close(c);
}

void TcpMeeting::close(Connection& c) {
  std::list<Connection>& owner = c.state == Connection::State::kMember ? members_ : strangers_;
  clear_timer(c);
  stop_waiting(c);
  c.fd.reset();
  c.state = Connection::State::kClosed;
  closed_.splice(closed_.end(), owner, c.self);
}

void TcpMeeting::set_timer(Connection& c, Deadline when) {
  clear_timer(c);
  c.timer = timers_.emplace(when, &c);
}

void TcpMeeting::clear_timer(Connection& c) {
  if (c.timer) timers_.erase(*c.timer);
  c.timer.reset();
}

void TcpMeeting::expire() {
  const Deadline now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Connection& c = *timers_.begin()->second;
    if (c.state != Connection::State::kMember) {
      gone(c, "it took too long");
      continue;
    }
    const Status late = roster_.timed_out(c.pending->key);
    stop_waiting(c);
    answer_pending(c, late.code(), std::make_shared<const std::string>(late.message()));
  }
}

int TcpMeeting::wait_ms() const {
  Deadline next = Clock::now() + std::chrono::hours(1);
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
  if (!accepting_) next = std::min(next, accept_again_);
  return poll_timeout_ms(next);
}

void TcpMeeting::farewell() {
  std::string text = "rank 0 left the meeting";
  if (const std::string absent = roster_.absent(); !absent.empty()) text += "; " + absent;
  setup_.listeners.clear();
  for (Connection& c : members_) {
    if (c.rank == 0) continue;
    c.say(encode_goodbye(text));
    (void)c.flush();
    // What is still unread would make close() reset the connection and lose what was just said.
    for (int i = 0; i < kLastReads && c.read_some() == Connection::Io::kOk && !c.in.empty(); ++i) c.in.clear();
    shutdown(c.fd.get(), SHUT_WR);
  }
  strangers_.clear();
  members_.clear();
}

}  // namespace shardcomm::bootstrap
