// The C ABI of messages between two ranks, and of communicators of some ranks.
#include <vector>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_message, timeout_ms, timeout_ms, "shardcomm_message_init");

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

shardcomm_message default_message() {
  shardcomm_message message{};
  message.struct_size = sizeof message;
  message.dtype = SHARDCOMM_F32;
  return message;
}

Result<std::chrono::milliseconds> timeout_of(const shardcomm_message& message) {
  if (message.timeout_ms < 0)
    return Status(Code::kInvalidArgument, "timeout_ms is negative: " + std::to_string(message.timeout_ms));
  return std::chrono::milliseconds(message.timeout_ms);
}

}  // namespace

void shardcomm_message_init_sized(shardcomm_message* message, size_t struct_size) {
  init_sized(default_message(), message, struct_size);
}

shardcomm_code shardcomm_send(shardcomm_comm* comm, const void* data, size_t count, int32_t dtype, int32_t peer,
                              int32_t tag, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.send({.data = data, .count = count, .dtype = to_dtype(dtype), .peer = peer, .tag = tag}, on);
  });
}

shardcomm_code shardcomm_recv(shardcomm_comm* comm, void* data, size_t count, int32_t dtype, int32_t peer, int32_t tag,
                              shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.recv({.data = data, .count = count, .dtype = to_dtype(dtype), .peer = peer, .tag = tag}, on);
  });
}

shardcomm_code shardcomm_send_recv_many(shardcomm_comm* comm, const shardcomm_message* messages, size_t message_count,
                                        shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    if (message_count != 0) SHARDCOMM_REQUIRE(messages);
    std::vector<SendArgs> sends;
    std::vector<RecvArgs> receives;
    const auto add = [&](const shardcomm_message& message, size_t) -> Status {
      SHARDCOMM_TRY_ASSIGN(const auto timeout, timeout_of(message));
      const DType dtype = to_dtype(message.dtype);
      const std::string_view label = text(message.label);
      if (message.direction == SHARDCOMM_SEND) {
        sends.push_back({message.data, message.count, dtype, message.peer, message.tag, label, timeout});
      } else if (message.direction == SHARDCOMM_RECV) {
        receives.push_back({message.data, message.count, dtype, message.peer, message.tag, label, timeout});
      } else {
        return Status(Code::kInvalidArgument, "message.direction is " + std::to_string(message.direction) +
                                                  ", neither SHARDCOMM_SEND nor SHARDCOMM_RECV");
      }
      return {};
    };
    SHARDCOMM_TRY(for_each_growing(messages, message_count, default_message(), "message", add));
    return c.send_recv_many(sends, receives, on);
  });
}

shardcomm_code shardcomm_comm_subgroup(shardcomm_comm* comm, const int32_t* ranks, size_t rank_count, const char* label,
                                       shardcomm_comm** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    if (rank_count != 0) SHARDCOMM_REQUIRE(ranks);
    SHARDCOMM_REQUIRE(out);
    if (rank_count > static_cast<size_t>(comm->comm.size()))
      return Status(Code::kInvalidArgument, std::to_string(rank_count) + " ranks are more than the communicator has");
    return deliver(comm->comm.subgroup({ranks, rank_count}, text(label)), out);
  });
}
