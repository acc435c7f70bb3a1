// Children and namespaces for tests that change a process in a way that cannot be undone.
#pragma once
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace shardcomm::testing {

// Runs `function` in a child, because what it does to the process cannot be undone. False where it says so or dies.
inline bool works_in_a_child(const std::function<bool()>& function) {
  const pid_t child = fork();
  if (child == 0) _exit(function() ? 0 : 1);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Makes mounts of this process invisible to all others.
inline bool mount_alone() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace shardcomm::testing
