// Random tokens, and the one that names this process.
#include "memory/token.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/check.h"

namespace shardcomm {
namespace {

struct Process {
  std::mutex mutex;
  pid_t pid = 0;  // whose token it is: a forked child inherits this object
  Token token;
};

Process& this_process() {
  static auto* const instance = new Process;  // peers may read the token until the very end
  return *instance;
}

}  // namespace

Token random_token() {
  Token token;
  ssize_t got = 0;
  do {
    got = getrandom(&token, sizeof token, 0);
  } while (got < 0 && errno == EINTR);
  SHARDCOMM_CHECK(got == static_cast<ssize_t>(sizeof token), "getrandom gives up to 256 bytes or fails");
  return token;
}

const Token& process_token_in_place() {
  Process& process = this_process();
  const std::lock_guard lock(process.mutex);
  if (process.pid != getpid()) {
    process.token = random_token();
    process.pid = getpid();
  }
  return process.token;
}

Token process_token() { return process_token_in_place(); }

}  // namespace shardcomm
