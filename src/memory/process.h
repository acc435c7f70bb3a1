// Part of the door memory/memory.h: names that no two processes or segments share.
#pragma once
#include <array>
#include <cstdint>

namespace shardcomm {

// 128 random bits.
struct Token {
  std::array<uint64_t, 2> words{};
  bool operator==(const Token&) const = default;
};

// Names this process; a forked child has another. Any thread.
Token process_token();

}  // namespace shardcomm
