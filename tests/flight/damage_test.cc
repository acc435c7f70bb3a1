// What looks like a flight record and is none: memfds of others under the same name, damaged segments, JSON that is cut
// off or altered. Every one of them is an error that says what is wrong.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "flight/flight.h"
#include "flight/image.h"
#include "tests/flight/support.h"

namespace shardcomm::testing {
namespace {

// A memfd under the recorder's name, as long as it lives.
class Impostor {
 public:
  explicit Impostor(const std::string& content, bool sealed = true)
      : fd_(memfd_create(kFlightName, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (fd_ < 0 || write(fd_, content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
        (sealed && fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0))
      throw std::runtime_error("memfd");
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;
  ~Impostor() { close(fd_); }

 private:
  int fd_;
};

std::unique_ptr<FlightRecorder> make_recorder() {
  Options options;
  options.dump_signal = "off";
  auto recorder = FlightRecorder::create({0, 77, 1, 3}, options);
  if (!recorder.ok()) throw std::runtime_error(recorder.status().to_string());
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
    (*recorder)->enqueue(epoch, {.dtype = DType::kF32, .count = 10}, "l", (*recorder)->now());
    (*recorder)->start(epoch, (*recorder)->now());
    (*recorder)->finish(epoch, Code::kOk);
  }
  return std::move(recorder).value();
}

std::string segment_bytes() {
  const auto recorder = make_recorder();
  return {reinterpret_cast<const char*>(&recorder->segment()), sizeof(FlightSegment)};
}

void expect_refused(const std::string& content, Code code, std::string_view words, bool sealed = true) {
  const Impostor impostor(content, sealed);
  EXPECT_TRUE(failed_with(read_flight_records(getpid()).status(), code, {words, "/proc/"}));
  const auto scan = scan_flight_records();
  ASSERT_TRUE(scan.ok());
  const auto found = std::count_if(scan->problems.begin(), scan->problems.end(), [&](const std::string& problem) {
    return problem.find(words) != std::string::npos;
  });
  EXPECT_GE(found, 1) << words;
}

TEST(FlightDamage, OtherMemfdsAreRefused) {
  expect_refused(std::string(sizeof(FlightSegment), 'g'), Code::kDataLoss, "does not begin like one");
  expect_refused("short", Code::kDataLoss, "it has 5 bytes");
  expect_refused(std::string(sizeof(FlightSegment), 'g'), Code::kDataLoss, "may change its size", false);
  std::string other = segment_bytes();
  reinterpret_cast<FlightHeader*>(other.data())->layout = 99;
  expect_refused(other, Code::kUnsupported, "layout 99");
  other = segment_bytes();
  reinterpret_cast<FlightHeader*>(other.data())->rank = 3;
  expect_refused(other, Code::kDataLoss, "header is damaged");
}

TEST(FlightDamage, ARecordThatIsBeingMadeIsLeftOut) {
  const Impostor empty(""), zero(std::string(sizeof(FlightSegment), '\0'));
  EXPECT_TRUE(failed_with(read_flight_records(getpid()).status(), Code::kUnavailable, {"no communicator"}));
  const auto recorder = make_recorder();
  const auto records = read_flight_records(getpid());
  ASSERT_TRUE(records.ok()) << records.status().to_string();
  EXPECT_EQ(records->size(), 1u);
}

TEST(FlightDamage, ProcessesWithoutRecordsAreNamed) {
  EXPECT_TRUE(failed_with(read_flight_records(1 << 30).status(), Code::kUnavailable, {"no process", "1073741824"}));
  EXPECT_TRUE(failed_with(read_flight_records(getpid()).status(), Code::kUnavailable, {"no communicator"}));
}

// Behind a sound header anything may stand: nothing is believed that could harm the reader.
TEST(FlightDamage, AnyRecordsCanBeRead) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    std::string bytes = segment_bytes();
    for (size_t i = kFlightHeaderBytes; i + 8 <= bytes.size(); i += 8) {
      const uint64_t word = random() >> (random() % 64);
      if (random() % 4 != 0) std::memcpy(&bytes[i], &word, sizeof word);
    }
    alignas(FlightSegment) static std::byte storage[sizeof(FlightSegment)];
    std::memcpy(storage, bytes.data(), bytes.size());
    const auto* segment = reinterpret_cast<const FlightSegment*>(storage);
    const std::vector<FlightGroup> groups = group_flight_records({record_of(*segment)});
    ASSERT_EQ(groups.size(), 1u);
    (void)groups[0].places();
    (void)groups[0].first_difference();
    (void)flight_to_json(groups);
  }
}

std::string json() {
  const auto recorder = make_recorder();
  return flight_to_json(group_flight_records({record_of(recorder->segment())}));
}

TEST(FlightDamage, JsonThatIsCutOffIsAnError) {
  const std::string whole = json();
  ASSERT_TRUE(parse_flight_json(whole).ok()) << parse_flight_json(whole).status().to_string();
  const DumpDirectory directory;
  const std::string path = directory.path() + "/cut.json";
  for (size_t bytes = 0; bytes + 1 < whole.size(); bytes += 37) {
    const Status status = parse_flight_json(whole.substr(0, bytes)).status();
    ASSERT_TRUE(failed_with(status, Code::kDataLoss, {"no flight record", "byte"})) << bytes;
  }
  std::ofstream(path) << whole.substr(0, whole.size() / 2);
  EXPECT_TRUE(failed_with(read_flight_file(path).status(), Code::kDataLoss, {path, "cut off"}));
  EXPECT_TRUE(failed_with(read_flight_file(path + "x").status(), Code::kUnavailable, {path + "x"}));
  EXPECT_FALSE(read_flight_file(directory.path()).ok());
}

TEST(FlightDamage, JsonOfAnotherFormIsAnError) {
  const auto refused = [](const std::string& text, std::string_view words, Code code = Code::kDataLoss) {
    EXPECT_TRUE(failed_with(parse_flight_json(text).status(), code, {words})) << text.substr(0, 100);
  };
  refused("{}", "format");
  refused("7", "neither an object nor a list");
  refused("[7]", "neither an object nor a list");
  refused(R"({"format":"shardcomm-flight"})", "format_version");
  refused(R"({"format":"else","format_version":1})", "format");
  refused(R"({"format":"shardcomm-flight","format_version":9})", "version 9", Code::kUnsupported);
  refused(std::string(5000, '['), "not JSON");
  refused(std::string(100, '[') + std::string(100, ']'), "too deep");
  const auto altered = [&](const std::string& from, const std::string& to, std::string_view words) {
    std::string text = json();
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    refused(text.replace(at, from.size(), to), words);
  };
  altered("\"rank\": 1", "\"rank\": 3", "rank");
  altered("\"rank\": 1", "\"rank\": -1", "rank");
  altered("\"rank\": 1", "\"rank\": 1e300", "rank");
  altered("\"pid\": ", "\"pid\": 99999999", "pid");
  altered("\"epoch\": 2", "\"epoch\": 1", "comes after");
  altered("\"dtype\": \"f32\"", "\"dtype\": \"f33\"", "dtype");
  altered("\"outcome\": \"ok\"", "\"outcome\": 7", "outcome");
  altered("\"operation\": \"all_gather\"", "\"operation\": \"all_together\"", "operation");
}

// Single bytes altered at random: an error or other values, never harm.
TEST(FlightDamage, AlteredJsonNeverHarms) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::string whole = json();
  for (int round = 0; round < 500; ++round) {
    std::string text = whole;
    for (int k = 0; k < 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    auto records = parse_flight_json(text);
    if (!records.ok()) continue;
    for (const FlightGroup& group : group_flight_records(*records)) {
      (void)group.places();
      (void)group.first_difference();
    }
  }
}

}  // namespace
}  // namespace shardcomm::testing
