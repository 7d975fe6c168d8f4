// Boost.Fiber, on one thread: what a benchmark runs beside sinew. Called with a workload, a number of tasks and of rounds for each; says how
// many operations were done, and in how many nanoseconds.
#include <boost/fiber/all.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

namespace fibers = boost::fibers;

namespace {

constexpr std::size_t capacity = 128;
constexpr int consumers = 4;
constexpr std::uint64_t yield_every = 16;

void join_all(std::vector<fibers::fiber>& all) {
    for (auto& one : all) one.join();
}

std::uint64_t channel(std::uint64_t producers, std::uint64_t rounds) {
    fibers::buffered_channel<std::uint64_t> messages{capacity};
    std::uint64_t done = 0;
    std::vector<fibers::fiber> sending, taking;
    for (std::uint64_t i = 0; i < producers; ++i)
        sending.emplace_back([&] {
            for (std::uint64_t value = 0; value < rounds; ++value) messages.push(value);
        });
    for (int i = 0; i < consumers; ++i)
        taking.emplace_back([&] {
            std::uint64_t value, count = 0;
            while (messages.pop(value) == fibers::channel_op_status::success) ++count;
            done += count;
        });
    join_all(sending);
    messages.close();
    join_all(taking);
    return done;
}

std::uint64_t mutex(std::uint64_t tasks, std::uint64_t rounds) {
    fibers::mutex lock;
    std::uint64_t total = 0;
    std::vector<fibers::fiber> all;
    for (std::uint64_t i = 0; i < tasks; ++i)
        all.emplace_back([&] {
            for (std::uint64_t round = 1; round <= rounds; ++round) {
                std::unique_lock<fibers::mutex> guard{lock};
                ++total;
                if (round % yield_every == 0) boost::this_fiber::yield();
            }
        });
    join_all(all);
    return total;
}

std::uint64_t pingpong(std::uint64_t, std::uint64_t rounds) {
    fibers::unbuffered_channel<std::uint64_t> ping, pong;
    std::uint64_t done = 0;
    std::vector<fibers::fiber> all;
    all.emplace_back([&] {
        std::uint64_t value;
        while (ping.pop(value) == fibers::channel_op_status::success) pong.push(value + 1);
    });
    all.emplace_back([&] {
        std::uint64_t value;
        for (std::uint64_t round = 0; round < rounds; ++round) {
            ping.push(round);
            if (pong.pop(value) == fibers::channel_op_status::success && value == round + 1) ++done;
        }
        ping.close();
    });
    join_all(all);
    return done;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const std::string name = argv[1];
    const std::uint64_t tasks = std::strtoull(argv[2], nullptr, 10), rounds = std::strtoull(argv[3], nullptr, 10);
    const auto run = name == "channel" ? channel : name == "mutex" ? mutex : name == "pingpong" ? pingpong : nullptr;
    if (!run) return 2;
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t done = run(tasks, rounds);
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin;
    std::cout << done << ' ' << spent.count() << '\n';
}
