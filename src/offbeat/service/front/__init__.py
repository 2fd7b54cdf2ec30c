"""What stands before the leader: it speaks with clients, and receives and checks what they send."""
