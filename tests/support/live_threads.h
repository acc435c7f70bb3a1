// How many threads a process has. A thread that has been joined shows in /proc/self/task until the kernel is through
// with it, so entries that are on their way out do not count.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace shardcomm::testing {

inline size_t live_threads() {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING: set before pthread_join is woken
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string stat;
    if (!std::getline(std::ifstream(task.path() / "stat"), stat)) continue;  // gone meanwhile
    // proc(5): the name in parentheses, then state, ppid, pgrp, session, tty_nr, tpgid and flags.
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    std::string skipped;
    for (int i = 0; i < 6; ++i) fields >> skipped;
    unsigned flags = 0;
    if (fields >> flags && (flags & kExiting) == 0) ++count;
  }
  return count;
}

}  // namespace shardcomm::testing
