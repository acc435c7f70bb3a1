// Threads that help one thread with its large pieces of work: what the many multiprocessors behind one stream are on a
// GPU. They are started by the first piece that is worth it, and sleep between pieces.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/birthplace.h"

namespace shardcomm {

class HostTeam {
 public:
  // `size`: threads that work at the same time, the calling one included. Starts none.
  explicit HostTeam(int size) noexcept : size_(size) {}
  HostTeam(const HostTeam&) = delete;
  HostTeam& operator=(const HostTeam&) = delete;
  ~HostTeam();  // joins; in a forked child, which has none of them, it leaves them be

  int size() const noexcept { return size_; }

  // How many parts a piece of so many bytes is worth: 1 where waking a helper takes longer than it saves.
  int parts_for(size_t bytes) const noexcept {
    return static_cast<int>(std::clamp<size_t>(bytes / kLeastPartBytes, 1, static_cast<size_t>(size_)));
  }

  // Calls part(0) … part(parts − 1), each once, on the caller and the helpers in any order, and returns when all have
  // returned. A part must not throw, nor run the team. One thread at a time. Where no thread can be started the caller
  // does it all.
  template <class Part>
  void run(int parts, Part&& part) {
    run(
        parts, [](void* context, int i) { (*static_cast<std::remove_reference_t<Part>*>(context))(i); }, &part);
  }

 private:
  static constexpr size_t kLeastPartBytes = size_t{1} << 20;
  using Function = void (*)(void* context, int part);
  void run(int parts, Function function, void* context);
  void start();
  void help();
  bool take_part(uint64_t& ticket);  // false: none is left of that piece

  const int size_;
  std::vector<std::thread> helpers_;
  bool started_ = false;
  Birthplace birthplace_;
  // What is to be done; written while no part is left, read by who has taken one.
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::atomic<uint64_t> ticket_{0};    // the number of the piece << 32 | parts of it that nobody has taken
  std::atomic<uint32_t> finished_{0};  // parts of it that have returned
  std::atomic<bool> closing_{false};
};

}  // namespace shardcomm
