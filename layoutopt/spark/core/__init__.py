"""What planning, loading and sessions share: a session's settings, features as SQL, segments, sources."""
