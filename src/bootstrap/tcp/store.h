// "tcp://host:port": rank 0 keeps the values and serves them, the other ranks connect.
#pragma once
#include <sys/types.h>

#include <memory>
#include <optional>
#include <thread>

#include "bootstrap/checked_store.h"
#include "bootstrap/local/board.h"
#include "bootstrap/tcp/client.h"
#include "bootstrap/tcp/meeting.h"

namespace shardcomm::bootstrap {

// A meeting and the thread that runs it; destruction ends both and waits for no peer.
class TcpServer {
 public:
  static Result<std::unique_ptr<TcpServer>> start(TcpMeeting::Setup setup);
  ~TcpServer();

 private:
  explicit TcpServer(std::unique_ptr<TcpMeeting> meeting) : meeting_(std::move(meeting)) {}
  std::unique_ptr<TcpMeeting> meeting_;
  std::thread thread_;
};

class TcpStore final : public CheckedStore {
 public:
  explicit TcpStore(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
  ~TcpStore() override;
  Status forget(const std::vector<std::string>& keys) override;

 private:
  Status enter(Rank rank, int world_size, const Options& options) override;
  Status keep(std::string_view key, std::string_view value) override;
  Result<std::string> fetch(std::string_view key, Deadline deadline) override;
  Status serve(int world_size, const Options& options);

  const Endpoint endpoint_;
  std::chrono::milliseconds set_timeout_{};
  // One of the two: a rank that is alone needs no port and no thread.
  std::unique_ptr<LocalBoard> alone_;
  std::optional<TcpClient> client_;
  std::unique_ptr<TcpServer> server_;  // rank 0's
  pid_t owner_ = 0;  // a forked child has the sockets but neither the thread nor the right to say goodbye
};

}  // namespace shardcomm::bootstrap
