// The tcp store's server: one thread, one epoll set, never waiting for anybody.
//
// A connection is a stranger until it has proven the job secret. Strangers may say two small frames, have two seconds
// and a bounded number of places; when the places are full the oldest gives way, so a flood delays the ranks of the job
// and does not stop them. A member asks one thing at a time and is not read from while its answers wait to be sent.
#pragma once
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bootstrap/auth.h"
#include "bootstrap/roster.h"
#include "bootstrap/tcp/connection.h"

namespace shardcomm::bootstrap {

// One thread runs it; stop() may be called from another.
class TcpMeeting {
 public:
  struct Setup {
    std::vector<Fd> listeners;
    Fd own;  // rank 0's end, a socket pair: already a member
    int world_size = 0;
    Secret secret;
  };
  static Result<std::unique_ptr<TcpMeeting>> open(Setup setup);

  void run();   // until stopped; then says goodbye to all
  void stop();  // does not wait

 private:
  explicit TcpMeeting(Setup setup);
  Status prepare();
  Status watch(int fd, uint64_t tag);

  void serve(uint64_t tag, uint32_t events);
  void accept_some();
  bool make_room();  // for one more stranger
  void pause_accepting(bool paused);
  void greet(Fd fd);

  void handle(Connection& c, uint32_t events);
  void work(Connection& c);  // the frames that have arrived
  void obey(Connection& c, const Frame& frame);
  void challenge(Connection& c, const Frame& frame);
  void judge(Connection& c, const Frame& frame);
  Status admit(const Connection& c, const Hello& hello);
  void announce(Connection& c, Outcome outcome, const Status& status);
  void serve_set(Connection& c, std::string_view body);
  void serve_get(Connection& c, std::string_view body);
  void serve_forget(Connection& c, std::string_view body);

  void answer(Connection& c, uint32_t id, const Status& status);
  // Its get must not be in waiting_ any more.
  void answer_pending(Connection& c, Code code, const std::shared_ptr<const std::string>& payload);
  void stop_waiting(Connection& c);  // takes its get, if any, out of waiting_
  void fail_pending();               // answers all with the meeting's failure
  void settle(Connection& c);        // writes what it can and tells epoll what to watch
  void settle_touched();
  void gone(Connection& c, const std::string& how);
  void close(Connection& c);
  void set_timer(Connection& c, Deadline when);
  void clear_timer(Connection& c);
  void expire();
  int wait_ms() const;
  void farewell();

  Setup setup_;
  Fd epoll_, stop_event_;
  Roster roster_;
  std::unordered_map<std::string, std::shared_ptr<const std::string>> values_;
  std::unordered_map<std::string, std::vector<Connection*>> waiting_;  // gets of keys that are not set
  std::list<Connection> strangers_, members_, closed_;                 // strangers: oldest first
  Connection::Timers timers_;
  std::vector<Connection*> touched_;  // have new output
  size_t stranger_limit_ = 0;
  bool accepting_ = true;
  Deadline accept_again_{};
  bool stopping_ = false;
  bool warned_of_secret_ = false;
};

}  // namespace shardcomm::bootstrap
