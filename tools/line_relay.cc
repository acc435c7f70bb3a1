#include "tools/line_relay.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace shardcomm::tools {
namespace {

constexpr size_t kLongestLine = 64 * 1024;  // longer ones are passed on in pieces

// What cannot be written is lost: there is nobody to tell.
void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(to, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd room{to, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

bool RepeatedErrors::is_repeated(std::string_view line) {
  return line.starts_with("shardcomm: error:") && !seen_.emplace(line).second;
}

LineRelay::LineRelay(int pipe, int to, std::string prefix, RepeatedErrors* repeated)
    : pipe_(pipe), to_(to), prefix_(std::move(prefix)), repeated_(repeated) {}

LineRelay::LineRelay(LineRelay&& other) noexcept
    : pipe_(std::exchange(other.pipe_, -1)),
      to_(other.to_),
      prefix_(std::move(other.prefix_)),
      repeated_(other.repeated_),
      partial_(std::move(other.partial_)) {}

LineRelay::~LineRelay() {
  if (pipe_ >= 0) close(pipe_);
}

void LineRelay::pass_on() {
  char bytes[16 * 1024];
  const ssize_t n = read(pipe_, bytes, sizeof bytes);
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) {
    close(std::exchange(pipe_, -1));
    return finish();
  }
  partial_.append(bytes, static_cast<size_t>(n));
  size_t begin = 0;
  for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1)
    write_line(std::string_view(partial_).substr(begin, end - begin));
  partial_.erase(0, begin);
  if (partial_.size() > kLongestLine) finish();
}

void LineRelay::finish() {
  if (!partial_.empty()) write_line(partial_);
  partial_.clear();
}

void LineRelay::write_line(std::string_view line) {
  if (repeated_ != nullptr && repeated_->is_repeated(line)) return;
  std::string whole = prefix_;
  whole += line;
  whole += '\n';
  write_all(to_, whole);
}

}  // namespace shardcomm::tools
