// Text from people into what reads it: options, sizes, counts, lists and names. Nothing crashes; what is accepted is
// within its limits and says the same when it is written out and read again; what is refused says why without the
// secret.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text.h"
#include "shardcomm/options.h"
#include "shardcomm/types.h"

namespace {

using namespace shardcomm;

void require(bool condition) {
  if (!condition) std::abort();
}

std::string written(const Options& o) {
  return "transports=" + o.transports + ",chunk_bytes=" + std::to_string(o.chunk_bytes) +
         ",staging_bytes=" + size_text(o.staging_bytes) + ",memory_access=" + o.memory_access +
         ",copy_threads=" + std::to_string(o.copy_threads) + ",timeout_ms=" + std::to_string(o.timeout.count()) +
         ",init_timeout_ms=" + std::to_string(o.init_timeout.count()) + ",spin_us=" + std::to_string(o.spin.count()) +
         ",log=" + o.log_level + ",trace_events=" + std::to_string(o.trace_events);
}

void options(std::string_view text) {
  const Result<Options> parsed = Options::parse(text);
  if (!parsed.ok()) {
    require(parsed.status().code() == Code::kInvalidArgument);
    const size_t secret = text.starts_with("job_secret=") ? 0 : text.find(",job_secret=") + 1;
    if (secret == 0 && !text.starts_with("job_secret=")) return;
    // Whatever the secret is, the message is the same.
    const size_t begin = secret + 11, end = std::min(text.find(',', begin), text.size());
    std::string other(text);
    other.replace(begin, end - begin, end - begin, 'x');
    const Result<Options> again = Options::parse(other);
    require(again.ok() || again.status().message() == parsed.status().message());
    return;
  }
  const Options& o = *parsed.operator->();
  require(o.timeout.count() > 0 && o.init_timeout.count() > 0 && o.spin.count() >= 0 && o.staging_bytes >= 4096);
  // Deadlines of these must not wrap.
  require(Deadline::clock::now() + o.timeout > Deadline::clock::now());
  require(!o.describe().empty());
  const Result<Options> again = Options::parse(written(o));
  require(again.ok() && written(*again.operator->()) == written(o));
}

void numbers(std::string_view text) {
  if (const auto count = parse_count(text)) {
    require(parse_count(std::to_string(*count)) == count);
    require(parse_size(text) == count);
  }
  if (const auto size = parse_size(text)) {
    require(parse_size(size_text(*size)) == size);
    require(!readable_bytes(*size).empty());
  }
}

void lists(std::string_view text) {
  std::string joined;
  for (const std::string_view part : split(text, ',')) {
    numbers(part);
    if (const auto dtype = parse_dtype(part)) require(name(*dtype) == part);
    if (const auto op = parse_reduce_op(part)) require(name(*op) == part);
    (joined += part) += ',';
  }
  if (!joined.empty()) joined.pop_back();
  require(joined == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  options(text);
  numbers(text);
  lists(text);
  return 0;
}
