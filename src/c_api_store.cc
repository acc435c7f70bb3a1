// The C ABI of meeting places: stores by URI, stores made of the caller's functions, and the launcher's word.
#include <algorithm>
#include <optional>
#include <utility>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_store_callbacks, close, close, "shardcomm_store_callbacks_init");
SHARDCOMM_GROWS(shardcomm_launched_rank, reserved, reserved, "");

using namespace shardcomm;
using namespace shardcomm::c_api;

namespace {

constexpr int32_t kLastCode = static_cast<int32_t>(Code::kDataLoss);

void give(void* sink, const void* bytes, size_t count) {
  auto& value = *static_cast<std::optional<std::string>*>(sink);
  value.emplace(count == 0 ? "" : static_cast<const char*>(bytes), count);
}

int64_t milliseconds_until(Deadline deadline) {
  constexpr int64_t kYear = int64_t{366} * 24 * 3600 * 1000;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::clamp<int64_t>(left.count(), 0, kYear);
}

// A Store of the caller's functions. What they throw ends here: a caller in C++ may not know better.
class CallbackStore final : public Store {
 public:
  explicit CallbackStore(const shardcomm_store_callbacks& callbacks) : callbacks_(callbacks) {}
  ~CallbackStore() override {
    if (callbacks_.close != nullptr) callbacks_.close(callbacks_.user);
  }
  CallbackStore(const CallbackStore&) = delete;
  CallbackStore& operator=(const CallbackStore&) = delete;

  Status join(Rank rank, int, const Options&) override {
    rank_ = rank;
    return {};
  }

  Status set(std::string_view key, std::string_view value) override {
    const std::string name(key);
    return checked("set", name, {},
                   [&] { return callbacks_.set(callbacks_.user, name.c_str(), value.data(), value.size()); });
  }

  Result<std::string> get(std::string_view key, Deadline deadline) override {
    const std::string name(key);
    std::optional<std::string> value;
    SHARDCOMM_TRY(checked("get", name, &value, [&] {
      return callbacks_.get(callbacks_.user, name.c_str(), milliseconds_until(deadline), give, &value);
    }));
    if (value) return *std::move(value);
    return Status(Code::kFailedPrecondition, describe("get", name) + " succeeded and gave no value");
  }

 private:
  std::string describe(const char* what, const std::string& key) const {
    return std::string("the store's ") + what + " of key '" + key + "' on rank " + std::to_string(rank_);
  }

  template <class Call>
  Status checked(const char* what, const std::string& key, const std::optional<std::string>* text, Call&& call) const {
    shardcomm_code code = SHARDCOMM_OK;
    try {
      code = call();
    } catch (const std::exception& thrown) {
      return Status(Code::kSystem, describe(what, key) + " threw: " + thrown.what());
    } catch (...) {
      return Status(Code::kSystem, describe(what, key) + " threw");
    }
    if (code == SHARDCOMM_OK) return {};
    const std::string why = text != nullptr && *text ? ": " + **text : std::string();
    if (code < 0 || code > kLastCode) {
      return Status(Code::kSystem, describe(what, key) + " returned " + std::to_string(code) +
                                       ", which is not a shardcomm_code" + why);
    }
    return Status(static_cast<Code>(code), describe(what, key) + " failed" + why);
  }

  shardcomm_store_callbacks callbacks_;
  Rank rank_ = 0;
};

}  // namespace

shardcomm_code shardcomm_store_open(const char* uri, shardcomm_store** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(uri);
    SHARDCOMM_REQUIRE(out);
    return deliver(open_store(uri), out);
  });
}
void shardcomm_store_close(shardcomm_store* store) { delete store; }

void shardcomm_store_callbacks_init_sized(shardcomm_store_callbacks* callbacks, size_t struct_size) {
  init_sized(shardcomm_store_callbacks{}, callbacks, struct_size);
}

shardcomm_code shardcomm_store_create(const shardcomm_store_callbacks* callbacks, shardcomm_store** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(callbacks);
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(const auto functions, read_growing(callbacks, shardcomm_store_callbacks{}, "callbacks"));
    if (functions.set == nullptr) return null_argument("callbacks.set");
    if (functions.get == nullptr) return null_argument("callbacks.get");
    auto handle = std::make_unique<shardcomm_store>();
    handle->store = std::make_unique<CallbackStore>(functions);  // the last that can fail: nothing is closed before
    *out = handle.release();
    return {};
  });
}

shardcomm_code shardcomm_launched_rank_from_env(shardcomm_launched_rank* out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(const LaunchedRank place, LaunchedRank::from_env());
    return write_growing<shardcomm_launched_rank>({.struct_size = 0,
                                                   .rank = place.rank,
                                                   .world_size = place.world_size,
                                                   .local_rank = place.local_rank,
                                                   .reserved = 0},
                                                  out, "out");
  });
}
