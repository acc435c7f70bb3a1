// The table of knobs: one row each. This file alone reads the environment.
#include "shardcomm/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "base/transport_names.h"
#include "shardcomm/trace.h"

namespace shardcomm {
namespace {

using Words = std::vector<std::string_view>;

// How a value reads and what it may be. `set` gives an empty string, or what the value should have been.
struct Knob {
  std::string_view name;
  const char* variable;
  std::string_view help;
  std::string (*set)(Options&, std::string_view value);
  std::string (*show)(const Options&);
  bool is_list = false;    // in parse(), comma-separated words without "=" go on with it
  bool is_secret = false;  // its value appears in no message
};

// Any text.
template <std::string Options::*kMember>
std::string set_text(Options& options, std::string_view value) {
  options.*kMember = value;
  return {};
}

std::string one_of(const Words& words) { return fmt::format("one of {}", fmt::join(words, ", ")); }

std::string set_word(std::string& target, std::string_view value, const Words& valid) {
  for (std::string_view word : valid) {
    if (word == value) {
      target = value;
      return {};
    }
  }
  return one_of(valid);
}

std::string set_transports(Options& options, std::string_view value) {
  Words valid = {"auto"};
  valid.insert(valid.end(), std::begin(kTransportNames), std::end(kTransportNames));
  const Words words = split(value, ',');
  if (words.empty()) return one_of(valid);
  std::string ignored;
  for (std::string_view word : words) {
    if (!set_word(ignored, word, valid).empty()) return "a list of " + one_of(valid).substr(7);
    if (word == "auto" && words.size() > 1) return "auto alone, or a list of transports";
  }
  options.transports = value;
  return {};
}

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

std::string set_size(size_t& target, std::string_view value, size_t least, size_t most = kNoLimit) {
  const auto bytes = parse_size(value);
  if (!bytes || *bytes < least || *bytes > most) {
    const std::string upper = most == kNoLimit ? "" : fmt::format(" and at most {}", size_text(most));
    return fmt::format("a size of at least {}{}, with K, M or G if you like", size_text(least), upper);
  }
  target = *bytes;
  return {};
}

std::string set_count(size_t& target, std::string_view value, uint64_t least, uint64_t most) {
  const auto count = parse_count(value);
  if (!count || *count < least || *count > most) return fmt::format("a whole number from {} to {}", least, most);
  target = *count;
  return {};
}

// Upper limits keep now + timeout inside the clock's range.
template <class Duration>
std::string set_duration(Duration& target, std::string_view value, uint64_t least, uint64_t most) {
  size_t count = 0;
  std::string wanted = set_count(count, value, least, most);
  if (wanted.empty()) target = Duration(count);
  return wanted;
}

constexpr uint64_t kYearMs = 365ull * 24 * 3600 * 1000;
constexpr size_t kLeastStagingBytes = 4096;  // a page

const Knob kKnobs[] = {
    {.name = "transports",
     .variable = "SHARDCOMM_TRANSPORTS",
     .help = "ordered list of transports to try",
     .set = set_transports,
     .show = [](const Options& o) { return o.transports; },
     .is_list = true},
    {.name = "chunk_bytes",
     .variable = "SHARDCOMM_CHUNK_BYTES",
     .help = "piece of an attached source that a reduction combines at a time; 0 lets the planner choose",
     .set = [](Options& o, std::string_view v) { return set_size(o.chunk_bytes, v, 0); },
     .show = [](const Options& o) { return size_text(o.chunk_bytes); }},
    {.name = "staging_bytes",
     .variable = "SHARDCOMM_STAGING_BYTES",
     .help = "shared staging ring of each rank",
     .set = [](Options& o, std::string_view v) { return set_size(o.staging_bytes, v, kLeastStagingBytes); },
     .show = [](const Options& o) { return size_text(o.staging_bytes); }},
    {.name = "memory_access",
     .variable = "SHARDCOMM_MEMORY_ACCESS",
     .help = "how peers read ordinary memory: auto (the fastest), attach (cross-memory attach, where allowed), "
             "attach_gathers (reductions by staging) or staging",
     .set =
         [](Options& o, std::string_view v) {
           return set_word(o.memory_access, v, {"auto", "attach", "attach_gathers", "staging"});
         },
     .show = [](const Options& o) { return o.memory_access; }},
    {.name = "copy_threads",
     .variable = "SHARDCOMM_COPY_THREADS",
     .help = "threads of a rank that move the bytes of one large operation; 0: a share of the cores",
     .set = [](Options& o, std::string_view v) { return set_count(o.copy_threads, v, 0, 64); },
     .show = [](const Options& o) { return fmt::format("{}", o.copy_threads); }},
    {.name = "timeout_ms",
     .variable = "SHARDCOMM_TIMEOUT_MS",
     .help = "limit of one operation",
     .set = [](Options& o, std::string_view v) { return set_duration(o.timeout, v, 1, kYearMs); },
     .show = [](const Options& o) { return fmt::format("{}", o.timeout.count()); }},
    {.name = "init_timeout_ms",
     .variable = "SHARDCOMM_INIT_TIMEOUT_MS",
     .help = "limit of meeting and connecting",
     .set = [](Options& o, std::string_view v) { return set_duration(o.init_timeout, v, 1, kYearMs); },
     .show = [](const Options& o) { return fmt::format("{}", o.init_timeout.count()); }},
    {.name = "spin_us",
     .variable = "SHARDCOMM_SPIN_US",
     .help = "busy waiting before sleeping in the kernel",
     .set = [](Options& o, std::string_view v) { return set_duration(o.spin, v, 0, 10'000'000); },
     .show = [](const Options& o) { return fmt::format("{}", o.spin.count()); }},
    {.name = "algorithm",
     .variable = "SHARDCOMM_ALGORITHM",
     .help = "engines (inline, direct) or rows to choose from where they can run; empty: all",
     .set = set_text<&Options::algorithm>,  // what is valid, the registry of algorithms knows
     .show = [](const Options& o) { return o.algorithm.empty() ? "all" : o.algorithm; },
     .is_list = true},
    {.name = "tune_file",
     .variable = "SHARDCOMM_TUNE_FILE",
     .help = "figures of this machine, from bench --tune; empty: typical ones",
     .set = set_text<&Options::tune_file>,
     .show = [](const Options& o) { return o.tune_file.empty() ? "typical" : o.tune_file; }},
    {.name = "log",
     .variable = "SHARDCOMM_LOG",
     .help = "least severe log line that is written",
     .set =
         [](Options& o, std::string_view v) {
           return set_word(o.log_level, v, {"off", "error", "warn", "info", "debug", "trace"});
         },
     .show = [](const Options& o) { return o.log_level; }},
    {.name = "job_secret",
     .variable = "SHARDCOMM_JOB_SECRET",
     .help = "authenticates the connections of a job",
     .set = set_text<&Options::job_secret>,
     .show = [](const Options& o) { return std::string(o.job_secret.empty() ? "unset" : "set"); },
     .is_secret = true},
    {.name = "dump_dir",
     .variable = "SHARDCOMM_DUMP_DIR",
     .help = "where each rank writes its last operations when its communicator fails, and on SIGUSR1; empty: nowhere",
     .set = set_text<&Options::dump_dir>,
     .show = [](const Options& o) { return o.dump_dir.empty() ? "none" : o.dump_dir; }},
    {.name = "dump_signal",
     .variable = "SHARDCOMM_DUMP_SIGNAL",
     .help = "whether SIGUSR1 dumps: auto (unless the program handles it), on (before the program's handler) or off",
     .set =
         [](Options& o, std::string_view v) {
           return set_word(o.dump_signal, v, {"auto", "on", "off"});
         },
     .show = [](const Options& o) { return o.dump_signal; }},
    {.name = "trace_events",
     .variable = "SHARDCOMM_TRACE_EVENTS",
     .help = "events kept for the timeline; 0 records nothing",
     .set = [](Options& o, std::string_view v) { return set_size(o.trace_events, v, 0, kMostTraceEvents); },
     .show = [](const Options& o) { return size_text(o.trace_events); }},
};

Status set(Options& options, const Knob& knob, std::string_view called, std::string_view value) {
  const std::string wanted = knob.set(options, value);
  if (wanted.empty()) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("{} is '{}', but must be {}", called, knob.is_secret ? "hidden" : value, wanted));
}

const Knob* find(std::string_view name) {
  for (const Knob& knob : kKnobs) {
    if (knob.name == name) return &knob;
  }
  return nullptr;
}

Status unknown_name(std::string_view name) {
  Words names;
  for (const Knob& knob : kKnobs) names.push_back(knob.name);
  return Status(Code::kInvalidArgument, fmt::format("unknown option '{}'; there are {}", name, fmt::join(names, ", ")));
}

}  // namespace

std::optional<std::string> launcher_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Result<Options> Options::from_env() {
  Options options;
  for (const Knob& knob : kKnobs) {
    if (const auto value = launcher_variable(knob.variable)) {
      SHARDCOMM_TRY(set(options, knob, knob.variable, *value));
    }
  }
  return options;
}

Result<Options> Options::parse(std::string_view text) {
  SHARDCOMM_TRY_ASSIGN(Options options, from_env());
  const std::vector<std::string_view> items = split(text, ',');
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].empty()) continue;
    const size_t equals = items[i].find('=');
    // The item is not repeated in this message: it may be the rest of a secret.
    if (equals == std::string_view::npos) {
      return Status(Code::kInvalidArgument,
                    fmt::format("options item {} has no '=': write name=value,name=value", i + 1));
    }
    const std::string_view name = items[i].substr(0, equals);
    const Knob* knob = find(name);
    if (knob == nullptr) return unknown_name(name);
    std::string value(items[i].substr(equals + 1));
    while (knob->is_list && i + 1 < items.size() && items[i + 1].find('=') == std::string_view::npos) {
      value.append(",").append(items[++i]);
    }
    SHARDCOMM_TRY(set(options, *knob, name, value));
  }
  return options;
}

std::string Options::describe() const {
  const Options defaults;
  std::string text;
  for (const Knob& knob : kKnobs) {
    text += fmt::format("{:<16} {:<10} (default {}, {}) {}\n", knob.name, knob.show(*this), knob.show(defaults),
                        knob.variable, knob.help);
  }
  return text;
}

}  // namespace shardcomm
