# What Sheaf needs from the system, found once. Debian 12 names; see README.md for the apt line.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl REQUIRED)
find_package(Boost 1.81 CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED COMPONENTS core)
find_package(CLI11 CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
if(SHEAF_BUILD_TESTS)
  find_package(Catch2 3 QUIET)
  if(NOT Catch2_FOUND)
    find_package(Catch2 2 REQUIRED)
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # What it must be told before it keeps results that read a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# Debian 12's msgpack package conflicts with Boost 1.81, so its headers are unpacked, not installed
# (`./do` does that before it configures). Where the distribution allows both, they are found as usual.
find_path(MSGPACK_INCLUDE_DIR msgpack.hpp
          HINTS ${PROJECT_SOURCE_DIR}/build/msgpack/usr/include REQUIRED)
add_library(msgpack INTERFACE)
target_include_directories(msgpack SYSTEM INTERFACE
  $<BUILD_INTERFACE:${MSGPACK_INCLUDE_DIR}>)
target_compile_definitions(msgpack INTERFACE MSGPACK_NO_BOOST)
