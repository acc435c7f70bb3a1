// A rank's end of a tcp store: dials rank 0, proves that it knows the job secret, then asks.
#pragma once
#include <string>
#include <string_view>

#include "bootstrap/auth.h"
#include "bootstrap/tcp/frame_stream.h"

namespace shardcomm::bootstrap {

// One thread at a time.
class TcpClient {
 public:
  struct Dial {
    Endpoint endpoint;
    Rank rank;
    int world_size;
    const Secret& secret;
  };
  // Retries while rank 0 starts late, 5 to 200 ms apart. Fails at once where trying again can not help: another
  // secret, version or world size, a rank that joined twice, something else that listens there.
  static Result<TcpClient> dial(const Dial& dial, Deadline deadline);

  // For the two ends of a socket pair, where nothing has to be proven.
  explicit TcpClient(FrameStream stream) : stream_(std::move(stream)) {}

  // A reply may come later than the deadline by kAnswerGrace, so that the store's text, which knows who is missing,
  // arrives; without any by then it is kTimedOut. kPeerLost where rank 0 is gone.
  Status set(std::string_view key, std::string_view value, Deadline deadline);
  Result<std::string> get(std::string_view key, Deadline deadline);
  Status forget(std::string_view packed_keys, Deadline deadline);

  void say_goodbye() noexcept { stream_.send_now(encode_goodbye({})); }

 private:
  Result<std::string> ask(std::string_view request, uint32_t id, Deadline deadline);
  Result<std::string> await_reply(uint32_t id, Deadline deadline);
  Status rank_0_is_gone(const Status& why);

  FrameStream stream_;
  uint32_t last_id_ = 0;
  Status broken_;
};

inline constexpr auto kAnswerGrace = std::chrono::seconds(1);

}  // namespace shardcomm::bootstrap
