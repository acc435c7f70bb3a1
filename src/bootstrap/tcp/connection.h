// One connection as the tcp store's server sees it.
#pragma once
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/socket.h"
#include "bootstrap/wire.h"

namespace shardcomm::bootstrap {

// The server's thread only. What it buffers is bounded: one frame in (`in` never exceeds what the caller's body limit
// allows by more than one read), and out the replies to the frames of one read, because nothing is read while
// anything waits to be written.
struct Connection {
  enum class State : uint8_t {
    kHello,    // accepted; nothing is known about it
    kProof,    // said hello, was challenged
    kMember,   // proved itself and was admitted
    kLeaving,  // gets the rest of what was said to it, then is closed
    kClosed,   // only waits to be freed
  };
  using Timers = std::multimap<Deadline, Connection*>;
  struct PendingGet {
    uint32_t id;
    std::string key;
  };

  Fd fd;
  std::string peer;
  State state = State::kHello;
  Deadline accepted{};
  Rank rank = -1;
  std::string hello_body, challenge_body;
  std::optional<PendingGet> pending;
  std::optional<Timers::iterator> timer;  // of its handshake, its pending get, or its leaving
  std::list<Connection>::iterator self;   // in the list that owns it
  bool watching_output = false;           // what epoll was told

  std::string in;

  enum class Io : uint8_t { kOk, kClosed, kFailed };
  Io read_some();  // at most one read's worth: others want to be served, too
  Io flush();      // writes what the socket takes
  void say(std::string bytes);
  void say(uint32_t id, Code code, std::shared_ptr<const std::string> payload);  // a reply; shared, not copied
  bool has_output() const { return !out.empty(); }
  std::string io_error;  // after kFailed

 private:
  std::deque<std::shared_ptr<const std::string>> out;
  size_t out_offset = 0;  // of out.front()
};

}  // namespace shardcomm::bootstrap
