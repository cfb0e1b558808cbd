#!/bin/sh
# Builds RocksDB for the comparison: Debian's source package of 7.8.3, as a release build. The library that Debian packages has
# assertions compiled in, which costs it nearly half of its random writes. DEBUG_LEVEL=0 leaves them out; the rest is the Makefile's
# own choice (optimised for the processor it is built on).
#
#   sh build.sh DIR        leaves DIR/librocksdb.a and DIR/include, and prints what to set for cgo
#
# Needs root for the packages it installs, 2 GB of disk, and about a quarter of an hour on two processors.
set -eu
dir=$(mkdir -p "$1" && cd "$1" && pwd)
export DEBIAN_FRONTEND=noninteractive
list=/etc/apt/sources.list.d/rowan-rocksdb.sources
if [ ! -e "$list" ]; then
	cat >"$list" <<-END
		Types: deb-src
		URIs: http://deb.debian.org/debian
		Suites: bookworm
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	END
fi
apt-get update -q >&2
apt-get install -q -y --no-install-recommends dpkg-dev make g++ libsnappy-dev liblz4-dev libzstd-dev zlib1g-dev libbz2-dev >&2
cd "$dir"
[ -d rocksdb-7.8.3 ] || apt-get source -q rocksdb=7.8.3-2 >&2
make -C rocksdb-7.8.3 -j"$(nproc)" DEBUG_LEVEL=0 USE_RTTI=1 DISABLE_WARNING_AS_ERROR=1 static_lib >&2
cp rocksdb-7.8.3/librocksdb.a .
rm -rf include && cp -r rocksdb-7.8.3/include include
echo "export CGO_CFLAGS=-I$dir/include"
echo "export CGO_LDFLAGS='-L$dir -lrocksdb -lstdc++ -lm -lz -lbz2 -lsnappy -llz4 -lzstd -ldl -lpthread'"
echo "export ROWAN_BENCH_ROCKSDB='7.8.3-2 of Debian, built with DEBUG_LEVEL=0'"
