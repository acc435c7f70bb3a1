// One child process: its environment, its descriptors, and the reason when it cannot be started.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::tools {

struct SpawnSpec {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", over this process's own
  bool keeps_stdin = false;              // false: /dev/null
  bool pipes_stdout = true;              // false: this process's own
  sigset_t signal_mask;                  // of the child
};

struct Spawned {
  pid_t process = -1;  // leads a process group of its own, and is killed when this process ends
  int output = -1;     // reading ends of its standard output, if piped, and error
  int errors = -1;
};

// Single-threaded processes only.
Result<Spawned> spawn(const SpawnSpec& spec);

}  // namespace shardcomm::tools
