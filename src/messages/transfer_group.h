// Sends and receives that run together, each at a stage of its own.
#pragma once
#include <span>
#include <vector>

#include "messages/inbox.h"
#include "messages/messages.h"

namespace shardcomm {

// One thread.
class TransferGroup {
 public:
  TransferGroup(Messages& messages, std::span<const Transfer> transfers);
  ~TransferGroup();
  TransferGroup(const TransferGroup&) = delete;
  TransferGroup& operator=(const TransferGroup&) = delete;

  Status run(TimeLimit& limit);

 private:
  enum class Stage : uint8_t {
    kBegin,   // a send that has not been posted; a receive that has not met its message
    kPosted,  // a direct or staged send, not acknowledged
    kPieces,  // a staged message under way
    kFinished,
  };
  struct State {
    Stage stage = Stage::kBegin;
    bool is_staged = false;
    uint16_t ticket = 0;
    uint64_t acknowledged = 0;  // of the ticket, before the message was posted
    size_t sent_bytes = 0;      // in pieces
    int32_t after = -1;         // index of the transfer that must be posted or matched before this one
  };

  void find_order();
  bool may_begin(const State& state) const noexcept;
  bool is_ready();  // advance(), and makes room for peers where that takes long
  bool advance();   // whether nothing is left to wait for: all have ended, or one has failed
  Status advance_send(const Transfer& send, State& state);
  Status post(const Transfer& send, State& state);
  void post_pieces(const Transfer& send, State& state);
  Status advance_receive(const Transfer& receive, State& state);
  Status meet(const Transfer& receive, State& state, const Inbox::Found& found);
  Status copy(const Transfer& receive, const SourceEntry& source);
  void finish(const Transfer& transfer, State& state) noexcept;
  Status check(TimeLimit& limit);
  std::string late_text();

  static constexpr size_t kOnStack = 4;
  Messages& messages_;
  Fabric& fabric_;
  Mailbox& mailbox_;
  const std::span<const Transfer> transfers_;
  State few_[kOnStack];
  std::vector<State> many_;
  const std::span<State> states_;  // of each transfer
  size_t unfinished_;
  int looks_ = 0;
  Status failure_;
};

}  // namespace shardcomm
