// The end of a program with a broken invariant.
#include "base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace shardcomm {

// Without the logger and without allocating: either may be what is broken, and the log may be off.
void check_failed(const char* file, int line, const char* condition, const char* text) noexcept {
  char message[512];
  const char* slash = std::strrchr(file, '/');
  const int length = std::snprintf(message, sizeof message, "shardcomm defect at %s:%d: %s (%s)\n",
                                   slash != nullptr ? slash + 1 : file, line, text, condition);
  if (length > 0) {
    const size_t bytes =
        static_cast<size_t>(length) < sizeof message ? static_cast<size_t>(length) : sizeof message - 1;
    if (write(STDERR_FILENO, message, bytes) < 0) std::abort();
  }
  std::abort();
}

}  // namespace shardcomm
