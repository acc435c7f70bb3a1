// JSON from outside: parsed without exceptions, and never so deep that walking it could exhaust the stack.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace shardcomm::zero {

// Discarded (is_discarded(), no object) when it is not JSON or nested deeper than 64.
inline nlohmann::json parse_json_text(std::string_view text) {
  constexpr int kMaxDepth = 64;
  bool too_deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  nlohmann::json parsed = nlohmann::json::parse(text, watch, false);
  return too_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : parsed;
}

}  // namespace shardcomm::zero
